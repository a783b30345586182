"""Clocks of requests for parts that are tested without a node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from moldau.broker.network.request_times import RequestClock
from moldau.broker.network.slow_requests import SlowRequests
from moldau.broker.runtime.loop_steps import LoopSteps


def request_clock(loop: Any = None, time_ns: Callable[[], int] = lambda: 1, slow_ms: int = -1) -> RequestClock:
    """A clock that stands still if no other is given. No request is slow if `slow_ms` is negative."""
    return RequestClock(time_ns, SlowRequests(cast("asyncio.AbstractEventLoop", loop), slow_ms), LoopSteps())
