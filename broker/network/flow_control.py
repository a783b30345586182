"""Decides when a connection is not read, and why."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from moldau.broker.network.replies import Output, ReplyQueue


class FlowControl:
    """Flow control: a connection is read only while its node can handle more requests from it.

        paused because                              until
        too many of its replies wait                some have left
        the transport has not sent all bytes        the transport has drained
        a request of it is decoded or examined in   `release`, once for each `hold`
        a thread, or is handled in parts
        its client is throttled by a quota          the throttle time is over
        it waits for its turn                       its turn (`TurnScheduler`)
        its partial frame has no room               request memory grants some (`PartialFrame.is_short`)

    A pause takes effect at once: frames that have arrived already are kept and handled after it. `is_paused` is an
    attribute, because it is read before each frame.
    """

    __slots__ = ("_holds", "_output", "_replies", "_throttle", "awaits_turn", "is_paused", "was_paused")

    def __init__(self, output: Output, replies: ReplyQueue) -> None:
        self._output = output
        self._replies = replies
        self.is_paused = False
        self.was_paused = False
        """Whether the connection was paused since it last received bytes, so that bytes may have waited in the
        kernel.
        """
        self.awaits_turn = False
        """Whether the connection keeps a whole frame and waits for its turn."""
        self._holds = 0
        """The number of `hold` calls without their `release`. While it is above 0, no request is handled."""
        self._throttle: asyncio.TimerHandle | None = None
        """The timer that ends the throttling of the client; None if the client is not throttled."""

    def pause(self) -> None:
        """Stop handling and reading, until `may_resume` is true."""
        transport = self._output.transport
        if not self.is_paused and transport is not None and not transport.is_closing():
            self.is_paused = self.was_paused = True
            transport.pause_reading()

    def read(self) -> None:
        """Read from the transport again, unless the connection is paused."""
        transport = self._output.transport
        if not self.is_paused and transport is not None:
            transport.resume_reading()

    @property
    def is_held(self) -> bool:
        return self._holds > 0

    def hold(self) -> None:
        self._holds += 1
        self.pause()

    def release(self) -> None:
        """Note that the work of one `hold` has ended."""
        self._holds -= 1

    def throttle(self, loop: asyncio.AbstractEventLoop, delay_ms: int, resume: Callable[[], None]) -> None:
        """Pause for `delay_ms`, then call `resume`. Nothing changes if the client is already throttled for longer."""
        end_s = loop.time() + delay_ms / 1000
        if self._throttle is not None:
            if self._throttle.when() >= end_s:
                return
            self._throttle.cancel()

        def over() -> None:
            self._throttle = None
            resume()

        self._throttle = loop.call_at(end_s, over)
        self.pause()

    def end(self) -> None:
        """Cancel the timer of the throttling, because the connection is closed."""
        if self._throttle is not None:
            self._throttle.cancel()

    def may_resume(self) -> bool:
        """Whether a paused connection may be read again, because every reason for the pause is gone."""
        output = self._output
        transport = output.transport
        if (
            not self.is_paused
            or self.awaits_turn
            or not output.is_writable
            or transport is None
            or transport.is_closing()
        ):
            return False
        return self._holds == 0 and self._throttle is None and not self._replies.is_ahead()
