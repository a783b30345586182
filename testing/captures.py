"""Serves a file of `moldau capture` in a test: `moldau restore` makes the data of a node from it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from moldau.testing.node import NodeFailed

NODE: Final = "1"
RESTORE: Final = (sys.executable, "-P", "-m", "moldau", "restore")
OFFSETS_MINUTES: Final = str(2**31 - 1)
"""The retention (minutes) of committed offsets: the test may run years after the capture was made."""


def unpack_capture(capture: Path, directory: Path) -> Path:
    """Restore a capture as the data of a node, below `directory`. Returns the node's data directory. Raises
    `NodeFailed`.
    """
    target = directory / "restored"
    words = [*RESTORE, str(capture), "--to", str(target), "--single-node", NODE]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NodeFailed(f"{capture} cannot be served", done.stderr.strip())
    return target / NODE


def settings_to_serve(settings: Mapping[str, str], controller: str) -> dict[str, str]:
    """The settings of a node that serves a restored capture, whose metadata names no voters. `controller` is the
    address of the node's controller listener.
    """
    kept = {name: value for name, value in settings.items() if name != "controller.quorum.bootstrap.servers"}
    return {"offsets.retention.minutes": OFFSETS_MINUTES} | kept | {"controller.quorum.voters": f"{NODE}@{controller}"}
