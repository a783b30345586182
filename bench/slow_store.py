"""A distant object store: `python -m bench.slow_store PORT UPSTREAM_PORT` passes the connections to a store on this
machine on, and gives each of them a delay and a rate.

A byte that a client sends arrives `DELAY_S` later, so that a request waits for a round trip. The bytes of the answers
leave with `RATE` on each connection, as a store with a limit for each of them sends them; several connections share no
limit.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import uvloop

from bench.object_server import wait_for_port
from bench.subjects import die_with_parent

DELAY_S: Final = 0.02
RATE: Final = 100_000_000
"""Bytes a second of one connection."""
PIECE_SIZE: Final = 256 << 10
"""The most bytes of an answer that are passed on at once: 2.6 ms of the rate."""


class SlowStore:
    """A process in front of a store. `with` ends it."""

    def __init__(self, port: int, upstream: str) -> None:
        """`upstream`: the endpoint of the store."""
        self.endpoint = f"http://127.0.0.1:{port}"
        words = [sys.executable, "-m", "bench.slow_store", str(port), upstream.rpartition(":")[2]]
        self._process = subprocess.Popen(words, start_new_session=True, preexec_fn=die_with_parent)
        self.pid = self._process.pid
        wait_for_port(port)

    def __enter__(self) -> SlowStore:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()


def passing_to(upstream_port: int) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    """A handler that passes a connection on to a store on this machine."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        store_reader, store_writer = await asyncio.open_connection("127.0.0.1", upstream_port, limit=PIECE_SIZE)
        try:
            with suppress(ConnectionError):
                await asyncio.gather(delayed(reader, store_writer), paced(store_reader, writer))
        finally:
            writer.close()
            store_writer.close()

    return connected


async def serve(port: int, upstream_port: int) -> None:
    async with await asyncio.start_server(passing_to(upstream_port), "127.0.0.1", port) as server:
        await server.serve_forever()


async def delayed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass each piece on `DELAY_S` seconds after it arrived, then close the connection."""
    loop = asyncio.get_running_loop()
    while data := await reader.read(PIECE_SIZE):
        loop.call_later(DELAY_S, writer.write, data)
    await asyncio.sleep(DELAY_S)
    writer.close()


async def paced(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass bytes on at most at `RATE` since the connection was last idle, then close the connection."""
    loop = asyncio.get_running_loop()
    free_s = 0.0
    while data := await reader.read(PIECE_SIZE):
        writer.write(data)
        await writer.drain()
        free_s = max(free_s, loop.time()) + len(data) / RATE
        if (pause_s := free_s - loop.time()) > 0:
            await asyncio.sleep(pause_s)
    writer.close()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), int(sys.argv[2])))
