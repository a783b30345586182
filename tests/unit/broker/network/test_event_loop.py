"""The event loop of a node closes each file descriptor once.

uvloop before 0.23 left a socket open whose connection was cancelled, after it had closed the descriptor: by the time
at which Python closed it again, the number could be that of another client's connection.
"""

from __future__ import annotations

import asyncio
import socket
import tomllib
from pathlib import Path
from typing import Final

import pytest
import uvloop

ROOT: Final = Path(__file__).parents[4]


def test_a_cancelled_connection_does_not_close_the_descriptor_of_another_one() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        near, far = socket.socketpair()
        near.setblocking(False)
        connecting = loop.create_task(loop.create_connection(asyncio.Protocol, sock=near))
        await asyncio.sleep(0)
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
        await asyncio.sleep(0)
        assert near.fileno() == -1
        far.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(story())


def test_every_pinned_version_is_one_that_the_project_accepts() -> None:
    """The lower bounds exclude versions with known faults (docs/decisions/0001-dependencies.md)."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    accepted = [
        *project["dependencies"],
        *(each for extra in project["optional-dependencies"].values() for each in extra),
    ]
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pinned = dict(line.lower().split("==") for line in lines if "==" in line)
    bounds = {}
    for requirement in accepted:
        name, _, bound = requirement.lower().partition(";")[0].strip().partition(">=")
        bounds[name.partition("[")[0]] = bound.partition(",")[0]
    bounds.pop("moldau")  # an extra that has another one
    assert bounds["uvloop"] == "0.23"
    for name, bound in bounds.items():
        assert numbers(pinned[name]) >= numbers(bound), name


def numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part.isdigit()]
