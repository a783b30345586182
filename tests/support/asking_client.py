"""A client that asks a real node again and again, and whether something is in force within a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Final

from moldau.protocol.messages.metadata import MetadataRequest
from tests.support.node import Client, Closed

METADATA: Final = MetadataRequest(topics=[])
BETWEEN_S: Final = 0.01


class AskingClient:
    """It asks until it is told to stop, or until the broker closes its connection."""

    def __init__(self, client: Client) -> None:
        self.answers = 0
        self.is_closed = False
        self._client = client
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        try:
            while True:
                await self._client.ask(METADATA, 9)
                self.answers += 1
                await asyncio.sleep(BETWEEN_S)
        except Closed:
            self.is_closed = True

    async def goes_on(self, within_s: float) -> bool:
        """Whether it has another answer within the time."""
        before = self.answers
        return await is_in_force(lambda: self._has_more_than(before), within_s) and not self.is_closed

    async def _has_more_than(self, before: int) -> bool:
        return self.answers > before

    def stop(self) -> None:
        self._task.cancel()


async def is_in_force(holds: Callable[[], Coroutine[object, object, bool]], within_s: float) -> bool:
    ends = time.monotonic() + within_s
    while time.monotonic() < ends:
        if await holds():
            return True
        await asyncio.sleep(0.1)
    return False
