"""Addresses between nodes that can be cut: bytes of a cut node wait, as packets do that are sent again until they come.

Every node is reached by the others through a relay of its own, for each listener one. Who calls is read from the client
id in the first request, so that both directions of one node can be cut, or one of them.
"""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Callable
from typing import Final

PIECE_SIZE: Final = 1 << 18
CLIENT_ID_PREFIX: Final = "node-"


class Network:
    """All relays, on a loop and in a thread of their own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="network", daemon=True)
        self._thread.start()
        self._cut: dict[int, None] = {}
        self._open = asyncio.Event()
        self._call(self._open.set)

    def relay(self, port: int, node_id: int, target: int) -> None:
        """From now on, who connects to `port` is led to the node's own port `target`."""

        async def serve() -> None:
            await asyncio.start_server(lambda r, w: self._accepted(r, w, node_id, target), "127.0.0.1", port)

        asyncio.run_coroutine_threadsafe(serve(), self._loop).result(10)

    def cut(self, node_id: int) -> None:
        """Nothing comes to the node any more from other nodes, and nothing from it to them."""
        self._call(lambda: self._cut_off(node_id))

    @property
    def is_open(self) -> bool:
        """Whether nothing is cut."""
        return not self._cut

    def heal(self) -> None:
        self._call(self._heal)

    def close(self) -> None:
        self._call(self._ended.set)
        self._thread.join(10)

    def _run(self) -> None:
        """Until the end, which ends what is still led through."""
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._until_ended())

    async def _until_ended(self) -> None:
        await self._ended.wait()

    def _call(self, work: Callable[[], None]) -> None:
        self._loop.call_soon_threadsafe(work)

    def _cut_off(self, node_id: int) -> None:
        self._cut[node_id] = None
        self._open.clear()

    def _heal(self) -> None:
        self._cut.clear()
        self._open.set()

    async def _passable(self, *ends: int) -> None:
        while any(end in self._cut for end in ends):
            await self._open.wait()

    async def _accepted(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, node_id: int, target: int
    ) -> None:
        try:
            first = await reader.readexactly(14)
            name = await reader.readexactly(max(0, struct.unpack_from(">h", first, 12)[0]))
            caller = caller_of(name)
            await self._passable(node_id, caller)
            there, out = await asyncio.open_connection("127.0.0.1", target)
        except (OSError, asyncio.IncompleteReadError):
            writer.transport.abort()
            return
        out.write(first + name)
        try:
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._pump(reader, out, node_id, caller))
                pumps.create_task(self._pump(there, writer, node_id, caller))
        except* (OSError, _Ended):
            out.transport.abort()
            writer.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *ends: int) -> None:
        while piece := await reader.read(PIECE_SIZE):
            await self._passable(*ends)
            writer.write(piece)
            await writer.drain()
        await self._passable(*ends)  # that a connection has ended is news too
        raise _Ended


class _Ended(Exception):
    """One side closed the connection."""


def caller_of(client_id: bytes) -> int:
    """The node that names itself so; -1 for anybody else."""
    name = client_id.decode(errors="replace")
    number = name.removeprefix(CLIENT_ID_PREFIX)
    return int(number) if name.startswith(CLIENT_ID_PREFIX) and number.isdigit() else -1
