"""The .moldau-life file: under which broker epoch a directory is served, and in which boot of the machine.

A process that was killed loses nothing that it had written: the kernel still has it. Whoever starts again within the
same boot, on a disk that refused nothing, may thus say in which epoch it stopped, as after a clean stop; only a machine
that went down makes that a lie. The file needs no sync: a boot later nobody believes it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from storage.files.port import FileSystem

LAST_LIFE = ".moldau-life"
VERSION = 0


class Life(NamedTuple):
    boot_id: str
    broker_epoch: int


def read_life(fs: FileSystem, directory: str) -> Life | None:
    """That of the process before this one, as far as it got to note it."""
    path = f"{directory}/{LAST_LIFE}"
    if not fs.exists(path):
        return None
    import json  # only here: importing it costs a millisecond of every start

    try:
        content = json.loads(fs.read(path))
    except (ValueError, OSError):
        return None
    if not isinstance(content, dict):
        return None
    boot_id, epoch = content.get("bootId"), content.get("brokerEpoch")
    return Life(boot_id, epoch) if isinstance(boot_id, str) and isinstance(epoch, int) else None


def write_life(fs: FileSystem, directory: str, life: Life) -> None:
    """Raises OSError. What it leaves behind when it is interrupted is no life at all."""
    file = fs.open(f"{directory}/{LAST_LIFE}", create=True)
    try:
        file.truncate(0)
        text = f'{{"version":{VERSION},"brokerEpoch":{life.broker_epoch},"bootId":"{life.boot_id}"}}'
        file.append([text.encode()])
    finally:
        file.close()


def forget_life(fs: FileSystem, directory: str) -> None:
    """The disk has refused something: what was written may be lost though the machine is up."""
    with suppress(OSError):
        fs.unlink(f"{directory}/{LAST_LIFE}")
