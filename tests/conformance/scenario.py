"""A scenario: a name, what it demands, and the story that finds out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.conformance.session import Session


@dataclass(frozen=True, slots=True)
class Scenario:
    """`run` raises `Failed`, or leaves what it observed in the session's facts."""

    name: str
    demands: str
    run: Callable[[Session], None]
    in_bounded: bool = True
