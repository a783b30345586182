"""The .moldau-life file: the broker epoch under which a log directory is served, and the id of the machine's boot.

A process that is killed loses no written data: the kernel still holds it. A process that starts again in the same boot,
after no disk error, may therefore report the broker epoch of the previous process to the controller, as after a clean
shutdown. Only a restart of the machine makes that untrue, and then the boot id in the file differs. The file is thus
never synced.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from moldau.storage.files.port import FileSystem

SERVING_EPOCH = ".moldau-life"
VERSION = 0


class ServingEpoch(NamedTuple):
    """The content of the file."""

    boot_id: str
    broker_epoch: int


def read_serving_epoch(fs: FileSystem, directory: str) -> ServingEpoch | None:
    """The broker epoch that the previous process wrote; None where there is no file or it cannot be read."""
    path = f"{directory}/{SERVING_EPOCH}"
    if not fs.exists(path):
        return None
    import json  # Imported here, because the import costs a millisecond of every start.

    try:
        content = json.loads(fs.read(path))
    except (ValueError, OSError):
        return None
    if not isinstance(content, dict):
        return None
    boot_id, epoch = content.get("bootId"), content.get("brokerEpoch")
    return ServingEpoch(boot_id, epoch) if isinstance(boot_id, str) and isinstance(epoch, int) else None


def write_serving_epoch(fs: FileSystem, directory: str, serving: ServingEpoch) -> None:
    """Write the file. Raises OSError. A file that was only half written counts as missing."""
    file = fs.open(f"{directory}/{SERVING_EPOCH}", create=True)
    try:
        file.truncate(0)
        text = f'{{"version":{VERSION},"brokerEpoch":{serving.broker_epoch},"bootId":"{serving.boot_id}"}}'
        file.append([text.encode()])
    finally:
        file.close()


def remove_serving_epoch(fs: FileSystem, directory: str) -> None:
    """Remove the file after an error of the disk: written data may be lost although the machine did not restart. An
    error of the removal itself is ignored, because nothing more can be done."""
    with suppress(OSError):
        fs.unlink(f"{directory}/{SERVING_EPOCH}")
