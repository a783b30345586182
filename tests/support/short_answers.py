"""The long requests of a node without a loop, for handlers whose answers are short."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from moldau.broker.apis.parts import LongRequests


def short_answers() -> LongRequests:
    nothing = cast("Any", None)
    return LongRequests(cast("Any", SimpleNamespace(precise_ns=lambda: 0)), nothing, nothing, nothing)
