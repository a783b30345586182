"""Files that stay open: an open file with several holders, and the limit on the files that segments keep open.

A segment, a reply that is being sent and a flush in an executor thread may all use one descriptor. None of them may
close it while another uses it, because the kernel may give the number of a closed descriptor to another file. An
`OpenFile` closes its descriptor when the last reference to it is dropped, so its users need not coordinate.

The limit follows the clock algorithm (second chance) over the holders. Segments and their indexes open a file when they
need it and keep it open. When more files are open than the limit allows, the holders are asked to close in the order in
which they opened: a holder that was not used since the last request closes its file, and one that was used is asked
again later. Using a file that is open costs nothing. A file that a reply or a sync still holds is closed when they are
done with it (`OpenFile`).

Executor threads may open files too. Files are closed for the limit only on the event loop, in a callback of its own, so
for a moment more files may be open than the limit allows.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from moldau.storage.files.file_slice import NonBlockingReads
from moldau.storage.files.port import DESCRIPTOR_LIMIT_ERRNOS, File, FileSystem, Readable

KEPT_PER_THOUSAND = 875
"""The number of files of each 1000 that stay open when the limit is passed. An eighth is closed at once, so that the
limit is rarely passed.
"""


class FileHolder(Protocol):
    """A segment or an index, which keeps a file open."""

    def close_if_unused(self) -> bool:
        """Close the file and return True, unless it was used since the last call; then return False. The file also
        stays open if this raises OSError.
        """


def never_close_aside(descriptor: int) -> bool:
    """Return False, so that the caller closes the descriptor itself: the default of `OpenFiles.close_aside`."""
    return False


class OpenFiles:
    """The holders of open files, and the limit on the number of these files. `note_opened` and `note_closed` may be
    called in any thread.
    """

    __slots__ = ("_call_soon", "_holders", "_is_due", "close_aside", "closed_for_limit_count", "count_max")

    def __init__(self) -> None:
        self._holders: OrderedDict[FileHolder, None] = OrderedDict()
        """The holders in the order in which they opened their files, or in which `close_if_unused` last found a file in
        use. Each change is one call, which is atomic among threads.
        """
        self._call_soon: Callable[[Callable[[], None]], object] | None = None
        self._is_due = False
        self.count_max = 0
        """The limit on the number of open files; 0 means no limit."""
        self.close_aside: Callable[[int], bool] = never_close_aside
        """Closes a descriptor in another thread, if this one must not wait until the blocks of a removed large file are
        freed. Returns False if the caller has to close the descriptor."""
        self.closed_for_limit_count = 0
        """The number of files that were closed because of the limit, since the start of the process."""

    def __len__(self) -> int:
        return len(self._holders)

    def limit_count(self, count_max: int, call_soon: Callable[[Callable[[], None]], object]) -> None:
        """Limit the number of open files to `count_max`.

        `call_soon` schedules a callback on the event loop, and must be thread-safe.
        """
        self.count_max = count_max
        self._call_soon = call_soon

    def remove_limit(self) -> None:
        """Remove the limit and forget the holders. Called before an executor thread closes the logs."""
        self.count_max = 0
        self._call_soon = None
        self._holders.clear()

    def note_opened(self, holder: FileHolder) -> None:
        """Add a holder that has opened its file. No effect without a limit (`limit_count`), as in Spark's processes: no
        reference is kept, so a segment may be dropped without closing it.
        """
        if self._call_soon is None:
            return
        self._holders[holder] = None
        if len(self._holders) > self.count_max > 0:
            self.schedule_closing()

    def note_closed(self, holder: FileHolder) -> None:
        """Remove a holder that has closed its file."""
        self._holders.pop(holder, None)

    def schedule_closing(self) -> None:
        """Schedule `close_unused_files`, which closes files in a later callback, because the caller may be using one of
        them now.
        """
        if self._call_soon is not None and not self._is_due:
            self._is_due = True
            self._call_soon(self.close_unused_files)

    def close_unused_files(self) -> None:
        """Close unused files until an eighth of the limit is free; without a limit, close an eighth of all files. A
        holder whose file was used since the last request is asked a second time."""
        self._is_due = False
        if self._call_soon is None:
            return
        count_wanted = min(len(self._holders), self.count_max or len(self._holders)) * KEPT_PER_THOUSAND // 1000
        for _ in range(2 * len(self._holders)):
            if len(self._holders) <= count_wanted:
                return
            holder, _ = self._holders.popitem(last=False)
            try:
                is_closed = holder.close_if_unused()
            except OSError:
                is_closed = False  # The next use of the file meets the same error, and reports it with the partition.
            if is_closed:
                self.closed_for_limit_count += 1
            else:
                self._holders[holder] = None


def open_for_holder(
    fs: FileSystem, holder: FileHolder, path: str, *, create: bool = False, read_only: bool = False
) -> OpenFile:
    """Open a file that `holder` keeps open. Raises OSError. If the process has no descriptor left, other holders close
    their files soon, and the caller may try again."""
    try:
        opened = OpenFile(fs.open(path, create=create, read_only=read_only))
    except OSError as error:
        if error.errno in DESCRIPTOR_LIMIT_ERRNOS:
            fs.open_files.schedule_closing()
        raise
    fs.open_files.note_opened(holder)
    return opened


class OpenFile:
    """A file that stays open for as long as this object is referenced."""

    __slots__ = ("file",)

    def __init__(self, file: File) -> None:
        self.file = file

    def __del__(self) -> None:
        self.file.close()

    def readable(self, *, waits: bool) -> Readable:
        """Return the file for reading. Without `waits`, return a view of the file whose reads raise `NotCached` instead
        of waiting for the disk."""
        return self.file if waits else NonBlockingReads(self)
