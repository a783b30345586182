"""The wait of a start until this node has read all records that were committed before it started."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from moldau.broker.metadata.raft.foreign_quorum import ForeignQuorum
from moldau.broker.runtime.progress import log as progress

PROGRESS_S: Final = 5.0
"""The time (seconds) between two log lines of a start that waits."""


class CatchUp:
    """The wait of a start until this node has caught up with the metadata. It ends once, by `reached` or by `failed`;
    later calls change nothing.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._ended: asyncio.Future[None] = loop.create_future()

    @property
    def is_over(self) -> bool:
        return self._ended.done()

    def reached(self) -> None:
        """The published image includes every record that was committed when this node started."""
        if not self._ended.done():
            self._ended.set_result(None)

    def failed(self, error: OSError | ForeignQuorum) -> None:
        """This node can neither lead nor catch up: `wait` raises the error."""
        if not self._ended.done():
            self._ended.set_exception(error)

    async def wait(self, describe: Callable[[], str]) -> None:
        """Wait for the end of the catch-up, and log the text of `describe` every five seconds. Raises the error of
        `failed`.
        """
        while not (await asyncio.wait([self._ended], timeout=PROGRESS_S))[0]:
            progress.info("still waiting for the metadata quorum: %s", describe())
        self._ended.result()
