"""Files that stay open: an open file with several holders, and the limit on the files that segments keep open.

A segment, a reply that is being sent and a flush in an executor thread may all use one descriptor. None of them may
close it while another uses it: the number of a closed descriptor may already stand for another file. Reference counting
closes the descriptor of an `OpenFile`, so that the three need not coordinate.

The limit is a clock (second chance) over the holders. Segments and their indexes open a file when they need it and keep
it open. When more are open than the limit, the holders are asked to close in the order in which they opened: a holder
that was not used since the last request closes its file, one that was used is asked again later. Using a file that is
open costs nothing. A file that a reply or a sync still holds is closed when they are done with it (`OpenFile`).

Executor threads may open files too. Files are given back only on the event loop, in a callback of its own, so that for
a moment more files may be open than the limit.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from moldau.storage.files.file_slice import CachedReads
from moldau.storage.files.port import NO_DESCRIPTOR, File, FileSystem, Readable

KEPT_PER_THOUSAND = 875
"""The number of files of each 1000 that stay open when the limit is passed. An eighth is closed at once, so that the
limit is rarely passed.
"""


class Holder(Protocol):
    """A segment or an index, which keeps a file open."""

    def give_back(self) -> bool:
        """Close the file and return True. If the file was used since the last call, keep it open and return False. The
        file also stays open if this raises OSError.
        """


class OpenFiles:
    """The holders of open files, and the limit. `opened` and `closed` may be called in any thread."""

    __slots__ = ("_call_soon", "_holders", "_is_due", "count_max", "given_back_count")

    def __init__(self) -> None:
        self._holders: OrderedDict[Holder, None] = OrderedDict()
        """The holders in the order in which they opened their files, or were last found to use them. Each change is one
        call, atomic among threads."""
        self._call_soon: Callable[[Callable[[], None]], object] | None = None
        self._is_due = False
        self.count_max = 0
        """The limit on open files; 0: no limit."""
        self.given_back_count = 0
        """Files closed because of the limit, since the start."""

    def __len__(self) -> int:
        return len(self._holders)

    def bound(self, count_max: int, call_soon: Callable[[Callable[[], None]], object]) -> None:
        """Limit the number of open files to `count_max`.

        `call_soon` must be thread-safe; it calls back on the event loop.
        """
        self.count_max = count_max
        self._call_soon = call_soon

    def unbound(self) -> None:
        """Remove the limit and forget the holders, because an executor thread is about to close the logs."""
        self.count_max = 0
        self._call_soon = None
        self._holders.clear()

    def opened(self, holder: Holder) -> None:
        """Note that a holder has opened its file.

        In a process that has set no limit (`bound`), such as one of Spark, this has no effect. That process may then
        drop a segment without closing it, because no reference to the segment is kept here.
        """
        if self._call_soon is None:
            return
        self._holders[holder] = None
        if len(self._holders) > self.count_max > 0:
            self.make_room()

    def closed(self, holder: Holder) -> None:
        """Note that a holder has closed its file."""
        self._holders.pop(holder, None)

    def make_room(self) -> None:
        """Close files in a later callback, because the caller may be using one of them now."""
        if self._call_soon is not None and not self._is_due:
            self._is_due = True
            self._call_soon(self.give_back)

    def give_back(self) -> None:
        """Close an eighth of the files.

        Each holder is asked at most twice, because it refuses once if its file was used since the last call.
        """
        self._is_due = False
        if self._call_soon is None:
            return
        count_wanted = min(len(self._holders), self.count_max or len(self._holders)) * KEPT_PER_THOUSAND // 1000
        for _ in range(2 * len(self._holders)):
            if len(self._holders) <= count_wanted:
                return
            holder, _ = self._holders.popitem(last=False)
            try:
                is_closed = holder.give_back()
            except OSError:
                is_closed = False  # The next use of the file meets the same error, and reports it with the partition.
            if is_closed:
                self.given_back_count += 1
            else:
                self._holders[holder] = None


def open_kept(fs: FileSystem, holder: Holder, path: str, *, create: bool = False, read_only: bool = False) -> OpenFile:
    """Open a file that the holder keeps open. Raises OSError. If the process has no descriptor left, other holders
    close their files soon, and the caller may try again.
    """
    try:
        opened = OpenFile(fs.open(path, create=create, read_only=read_only))
    except OSError as error:
        if error.errno in NO_DESCRIPTOR:
            fs.open_files.make_room()
        raise
    fs.open_files.opened(holder)
    return opened


class OpenFile:
    """Keeps a file open for as long as this object lives."""

    __slots__ = ("file",)

    def __init__(self, file: File) -> None:
        self.file = file

    def __del__(self) -> None:
        self.file.close()

    def reads(self, *, waits: bool) -> Readable:
        """Return the file. Without `waits`, return a view of it whose reads raise `NotCached` instead of waiting for
        the disk.
        """
        return self.file if waits else CachedReads(self)
