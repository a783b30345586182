"""A fetch that waits: looked at again when one of its partitions moves, answered at the latest when its time is up."""

from __future__ import annotations

from collections.abc import Callable

from broker.purgatory.timer_wheel import Timeouts
from broker.purgatory.wakes import Wakes
from broker.runtime.pending import Pending
from protocol.messages.fetch import FetchResponse
from replication.partition import Partition
from replication.replica_news import ReplicaNews


class DelayedFetch:
    """`attempt(is_last)` gives the response, or None to go on waiting; the last attempt always gives one."""

    def __init__(
        self,
        wakes: Wakes,
        timeouts: Timeouts,
        wait_ms: int,
        partitions: list[Partition],
        attempt: Callable[[bool], FetchResponse | Pending[FetchResponse] | None],
        *,
        is_replica: bool = False,
        news: ReplicaNews | None = None,
    ) -> None:
        """`is_replica`: woken by what is appended, not by what is committed. With `news` these tell of it."""
        self.reply: Pending[FetchResponse] = Pending(self._give_up)
        self._wakes = wakes
        self._timeouts = timeouts
        self._partitions = partitions
        self._attempt = attempt
        self.is_over = False
        """Answered, or given up."""
        self._timeout = timeouts.after(wait_ms, self._time_is_up)
        self._news = news
        if news is not None:
            news.wake = self._wake
        for partition in partitions:
            partition.wait(self._wake, for_appends=is_replica)

    def end_in(self, wait_ms: int) -> None:
        """Wait no longer than that from now on."""
        self._timeout.cancel()
        self._timeout = self._timeouts.after(wait_ms, self._time_is_up)

    def _wake(self) -> None:
        """A partition moved."""
        self._wakes.wake(self)

    def _time_is_up(self) -> None:
        self._look(is_last=True)

    def look(self) -> None:
        """Whether there is enough by now."""
        self._look(is_last=False)

    def _look(self, is_last: bool) -> None:
        if self.is_over:
            return
        response = self._attempt(is_last)
        if response is None:
            return
        self._give_up()
        if isinstance(response, Pending):
            response.listen(self.reply.complete)
        else:
            self.reply.complete(response)

    def _give_up(self) -> None:
        """Wait no longer, for anything."""
        self.is_over = True
        self._timeout.cancel()
        for partition in self._partitions:
            partition.forget(self._wake)
        if self._news is not None and self._news.wake == self._wake:
            self._news.wake = None
