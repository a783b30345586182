"""The files that segments keep open, and whose turn it is to give one back.

Segments and their indexes open a file when they need it and keep it. With more of them open than may be, those that
were not used since they were last asked give theirs back, the oldest first (a clock). Using a file that is open costs
nothing more. One that a reply or a sync still holds is closed when they let go (`OpenFile`).

Threads may open files beside the loop; given back is on the loop alone, in a turn of its own: until then there may be
some more than allowed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from storage.files.disk_errors import NO_DESCRIPTOR
from storage.files.open_file import OpenFile
from storage.files.port import FileSystem

KEPT_PER_THOUSAND = 875
"""How many stay when some have to go."""


class Holder(Protocol):
    """Who keeps a file open."""

    def give_back(self) -> bool:
        """Let go of it; False where it was used since this was last asked. Raises OSError and keeps it."""


class OpenFiles:
    __slots__ = ("_call_soon", "_holders", "_is_due", "count_max", "given_back_count")

    def __init__(self) -> None:
        self._holders: OrderedDict[Holder, None] = OrderedDict()
        """In the order in which they opened, or were last found in use. Each change is one call, whatever thread."""
        self._call_soon: Callable[[Callable[[], None]], object] | None = None
        self._is_due = False
        self.count_max = 0
        """0 where there is no bound."""
        self.given_back_count = 0
        """Since the start, to make room for others."""

    def __len__(self) -> int:
        return len(self._holders)

    def bound(self, count_max: int, call_soon: Callable[[Callable[[], None]], object]) -> None:
        """Keep no more than so many open. `call_soon` runs something on the loop, whatever thread asks."""
        self.count_max = count_max
        self._call_soon = call_soon

    def unbound(self) -> None:
        """From here on nothing is remembered or given back: the logs are being closed, beside the loop."""
        self.count_max = 0
        self._call_soon = None
        self._holders.clear()

    def opened(self, holder: Holder) -> None:
        """Without a bound nobody is remembered: who reads segments from outside may drop them without a word."""
        if self._call_soon is None:
            return
        self._holders[holder] = None
        if len(self._holders) > self.count_max > 0:
            self.make_room()

    def closed(self, holder: Holder) -> None:
        self._holders.pop(holder, None)

    def make_room(self) -> None:
        """Soon: not under the feet of who is asking."""
        if self._call_soon is not None and not self._is_due:
            self._is_due = True
            self._call_soon(self.give_back)

    def give_back(self) -> None:
        """Close an eighth of them. Each is asked twice at the most: the first time its use may excuse it."""
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
                is_closed = False  # whoever uses it next meets the same error, and can say of what it is
            if is_closed:
                self.given_back_count += 1
            else:
                self._holders[holder] = None


def open_kept(fs: FileSystem, holder: Holder, path: str, *, create: bool = False, read_only: bool = False) -> OpenFile:
    """Open a file that the holder keeps. Raises OSError; where it is for want of descriptors, others give some back."""
    try:
        opened = OpenFile(fs.open(path, create=create, read_only=read_only))
    except OSError as error:
        if error.errno in NO_DESCRIPTOR:
            fs.open_files.make_room()
        raise
    fs.open_files.opened(holder)
    return opened
