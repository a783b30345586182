"""The most common outcome of a request: a response that waits for the commit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from moldau.coordinator.runtime.effects import Waiter
from moldau.coordinator.runtime.step import Step
from moldau.protocol.errors import ErrorCode


class ReplyWhenCommitted(NamedTuple):
    """The outcome of a request whose response waits until its records are committed."""

    waiter: Waiter
    response: object
    refused: Callable[[ErrorCode], object]
    """Makes the response for an error of the log."""

    def committed(self, step: Step[Any]) -> None:
        step.reply(self.waiter, self.response)

    def failed(self, step: Step[Any], error: ErrorCode) -> None:
        step.reply(self.waiter, self.refused(error))
