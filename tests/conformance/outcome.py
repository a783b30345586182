"""How an operation or a scenario can end."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

Facts = dict[str, object]


class Refused(Exception):
    """The broker refused: carries Kafka's name of the error, as the client told it."""

    def __init__(self, error: str, text: str = "") -> None:
        super().__init__(f"{error}: {text}" if text else error)
        self.error = error


class Unavailable(Exception):
    """The client has no such call or option: nothing to hold against the broker."""


class Failed(Exception):
    """What the scenario demands was not observed."""


class Status(Enum):
    OK = "ok"
    FAIL = "FAIL"
    NOT_APPLICABLE = "n.a."


@dataclass(frozen=True, slots=True)
class Outcome:
    """One cell of the matrix. `facts` is what was observed, comparable between brokers."""

    status: Status
    reason: str = ""
    facts: Facts = field(default_factory=dict)
    seconds: float = 0.0
