"""A browser, and a program, that look at the console of a simulated node."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

from tests.support.node import HOST

HTTP_PORT: Final = 9464
SETTINGS: Final[dict[str, Any]] = {"moldau_http_listener": f"http://:{HTTP_PORT}", "moldau_console": "true"}


async def send(
    method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
) -> tuple[int, dict[str, str], str]:
    """The status, the header fields by name in lower case, and the body of a response."""
    fields = {"Host": f"{HOST}:{HTTP_PORT}", **(headers or {})}
    if body:
        fields["Content-Length"] = str(len(body))
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    reader, writer = await asyncio.open_connection(HOST, HTTP_PORT, limit=1 << 24)
    writer.write(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
    answer = (await reader.read()).decode()
    writer.close()
    top, _, text = answer.partition("\r\n\r\n")
    first, *lines = top.splitlines()
    named = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return int(first.split()[1]), named, text


async def get(path: str, **headers: str) -> tuple[int, dict[str, str], str]:
    return await send("GET", path, headers=headers)


async def json_of(path: str, **headers: str) -> Any:
    """A page as JSON, which must be there."""
    status, named, text = await get(path, Accept="application/json", **headers)
    assert status == 200, text
    assert named["content-type"] == "application/json"
    return json.loads(text)
