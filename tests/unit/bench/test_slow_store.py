"""The distant store of the bench passes on every byte, and gives a connection its rate."""

from __future__ import annotations

import asyncio

import pytest

from bench import slow_store

REQUEST = b"GET /bucket/key HTTP/1.1\r\n\r\n"
ANSWER = bytes(range(256)) * 10_000


@pytest.mark.processes
def test_a_request_and_its_answer_are_passed_on_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_store, "DELAY_S", 0.01)
    monkeypatch.setattr(slow_store, "RATE", 50_000_000)

    async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readexactly(len(REQUEST)) == REQUEST
        writer.write(ANSWER)
        await writer.drain()
        writer.close()

    async def story() -> tuple[bytes, float]:
        store = await asyncio.start_server(answered, "127.0.0.1", 0)
        port = store.sockets[0].getsockname()[1]
        proxy = await asyncio.start_server(slow_store.passing_to(port), "127.0.0.1", 0)
        async with store, proxy:
            began = asyncio.get_running_loop().time()
            reader, writer = await asyncio.open_connection(*proxy.sockets[0].getsockname())
            writer.write(REQUEST)
            read = await reader.read()
            writer.close()
            return read, asyncio.get_running_loop().time() - began

    read, seconds = asyncio.run(story())
    assert read == ANSWER
    assert seconds > 0.01 + len(ANSWER) / 50_000_000 - 0.001
