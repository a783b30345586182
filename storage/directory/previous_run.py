"""The end of the previous process that served a log directory, and the two files in the directory that tell it.

    .kafka_cleanshutdown    it exists if the last process wrote everything to the disk before it ended
    .moldau-life            the broker epoch under which the directory is served, and the id of the machine's boot

A process that is killed loses no written data, because the kernel still has it. So the next process may report the
broker epoch of the killed one to the controller, as after a clean shutdown, if it starts in the same boot of the
machine and no disk error occurred. After a restart of the machine the boot id in .moldau-life differs, although the
file is never synced; the broker epoch is then not reported.
"""

from __future__ import annotations

from contextlib import suppress

from moldau.protocol.late_tuple import NamedTuple
from moldau.storage.files.port import FileSystem, write_atomically


class PreviousRun:
    """The way in which the previous process ended. It is read once, when the directory is opened.

    | the previous process     | its files are trusted    | may have lost writes | its broker epoch is taken from |
    |--------------------------|--------------------------|----------------------|--------------------------------|
    | shut down cleanly        | all                      | no                   | .kafka_cleanshutdown           |
    | was killed, in this boot | up to the recovery point | no                   | .moldau-life                   |
    | ended with the machine   | up to the recovery point | yes                  | none: the epoch is not known   |

    Reading removes .kafka_cleanshutdown: if this process crashes, the next one must not find it. Raises OSError.
    """

    __slots__ = ("_serving", "clean_broker_epoch", "may_have_lost_writes")

    def __init__(self, fs: FileSystem, path: str, boot_id: str) -> None:
        self.clean_broker_epoch = read_clean_shutdown(fs, path)
        """The broker epoch in .kafka_cleanshutdown (-1 if the file has none); None after a crash."""
        remove_clean_shutdown(fs, path)
        self._serving = read_serving_epoch(fs, path)
        is_same_boot = self._serving is not None and boot_id != "" and self._serving.boot_id == boot_id
        self.may_have_lost_writes = not self.was_clean and not is_same_boot
        """Whether data that the previous process wrote but did not sync may be lost."""

    @property
    def was_clean(self) -> bool:
        return self.clean_broker_epoch is not None

    @property
    def broker_epoch(self) -> int | None:
        """The broker epoch of the previous process, if it ended without losing anything; None if it may have lost
        records."""
        if self.may_have_lost_writes:
            return None
        if self.was_clean or self._serving is None:
            return self.clean_broker_epoch
        return self._serving.broker_epoch


CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
SHUTDOWN_VERSION = 0
UNKNOWN_BROKER_EPOCH = -1


def read_clean_shutdown(fs: FileSystem, directory: str) -> int | None:
    """Read the broker epoch of the previous process from .kafka_cleanshutdown. Returns -1 if the file has no epoch, and
    None if there is no file, as after a crash."""
    path = f"{directory}/{CLEAN_SHUTDOWN_FILE}"
    if not fs.exists(path):
        return None
    import json  # Imported here, because the import costs a millisecond of every start.

    try:
        content = json.loads(fs.read(path))
    except ValueError:  # An empty file of an older release means the same.
        return UNKNOWN_BROKER_EPOCH
    epoch = content.get("brokerEpoch") if isinstance(content, dict) else None
    return epoch if isinstance(epoch, int) else UNKNOWN_BROKER_EPOCH


def remove_clean_shutdown(fs: FileSystem, directory: str) -> None:
    """Remove .kafka_cleanshutdown when a directory is opened, so that a later crash does not look like a clean
    shutdown. Raises OSError."""
    path = f"{directory}/{CLEAN_SHUTDOWN_FILE}"
    if fs.exists(path):
        fs.unlink(path)
        fs.sync_directory(directory)


def write_clean_shutdown(fs: FileSystem, directory: str, broker_epoch: int) -> None:
    """Write .kafka_cleanshutdown, as the last step of a clean shutdown. Raises OSError."""
    text = f'{{"version":{SHUTDOWN_VERSION},"brokerEpoch":{broker_epoch}}}'
    write_atomically(fs, f"{directory}/{CLEAN_SHUTDOWN_FILE}", text.encode())


SERVING_EPOCH_FILE = ".moldau-life"
SERVING_VERSION = 0


class ServingEpoch(NamedTuple):
    """The content of `.moldau-life`: the broker epoch of the process that serves the directory, and the id of the
    machine's boot."""

    boot_id: str
    broker_epoch: int


def read_serving_epoch(fs: FileSystem, directory: str) -> ServingEpoch | None:
    """Read `.moldau-life`, which the previous process wrote; None if the file is missing or cannot be read."""
    path = f"{directory}/{SERVING_EPOCH_FILE}"
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
    """Write `.moldau-life`. Raises OSError. A file that was only half written counts as missing."""
    file = fs.open(f"{directory}/{SERVING_EPOCH_FILE}", create=True)
    try:
        file.truncate(0)
        text = f'{{"version":{SERVING_VERSION},"brokerEpoch":{serving.broker_epoch},"bootId":"{serving.boot_id}"}}'
        file.append([text.encode()])
    finally:
        file.close()


def remove_serving_epoch(fs: FileSystem, directory: str) -> None:
    """Remove `.moldau-life` after an error of the disk: written data may be lost although the machine did not restart.
    An error of the removal is ignored, because nothing more can be done."""
    with suppress(OSError):
        fs.unlink(f"{directory}/{SERVING_EPOCH_FILE}")
