"""A node's process loads OpenSSL only when something uses it. Each case has a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
ECHO = """
import sys
from moldau.broker.runtime.event_loop import import_event_loop

import_event_loop()
import asyncio
import uvloop

async def echo(reader, writer):
    writer.write(await reader.readexactly(4))
    await writer.drain()
    writer.close()

async def main():
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b"four")
    print(await reader.readexactly(4), uvloop.__name__)
    writer.close()
    server.close()

with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
    runner.run(main())
print([name for name in ("ssl", "_ssl") if name in sys.modules])
maps = open("/proc/self/maps").read()
print("libssl" in maps or "libcrypto" in maps)
import ssl
print(isinstance(ssl.create_default_context(), ssl.SSLContext))
"""
AFTER_SSL = """
import ssl
from moldau.broker.runtime.event_loop import import_event_loop

import_event_loop()
import asyncio.sslproto
print(asyncio.sslproto.ssl is ssl)
"""
AFTER_ASYNCIO = AFTER_SSL.replace("import ssl\n", "import asyncio, ssl\n", 1)


def output(program: str) -> list[str]:
    return subprocess.check_output([sys.executable, "-c", program], cwd=ROOT, text=True, timeout=60).splitlines()


@pytest.mark.processes
def test_the_loop_serves_without_openssl_which_comes_when_it_is_imported() -> None:
    assert output(ECHO) == ["b'four' uvloop", "[]", "False", "True"]


@pytest.mark.processes
@pytest.mark.parametrize("program", [AFTER_SSL, AFTER_ASYNCIO])
def test_a_process_that_has_imported_it_before_stays_as_it_is(program: str) -> None:
    assert output(program) == ["True"]
