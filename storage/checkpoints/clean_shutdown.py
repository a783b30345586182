"""The .kafka_cleanshutdown file: the process that served the directory wrote everything out before it ended."""

from __future__ import annotations

from storage.files.port import FileSystem, write_atomically

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
VERSION = 0
UNKNOWN_BROKER_EPOCH = -1


def read_clean_shutdown(fs: FileSystem, directory: str) -> int | None:
    """The broker epoch of the previous process after a clean shutdown, -1 where the file does not hold one; None after
    a crash."""
    path = f"{directory}/{CLEAN_SHUTDOWN}"
    if not fs.exists(path):
        return None
    import json  # only here: importing it costs a millisecond of every start

    try:
        content = json.loads(fs.read(path))
    except ValueError:  # an empty file of an older release says the same
        return UNKNOWN_BROKER_EPOCH
    epoch = content.get("brokerEpoch") if isinstance(content, dict) else None
    return epoch if isinstance(epoch, int) else UNKNOWN_BROKER_EPOCH


def remove_clean_shutdown(fs: FileSystem, directory: str) -> None:
    """When a directory is opened: a crash from now on must not look like a clean shutdown. Raises OSError."""
    path = f"{directory}/{CLEAN_SHUTDOWN}"
    if fs.exists(path):
        fs.unlink(path)
        fs.sync_directory(directory)


def write_clean_shutdown(fs: FileSystem, directory: str, broker_epoch: int) -> None:
    """The last write of a clean shutdown. Raises OSError."""
    text = f'{{"version":{VERSION},"brokerEpoch":{broker_epoch}}}'
    write_atomically(fs, f"{directory}/{CLEAN_SHUTDOWN}", text.encode())
