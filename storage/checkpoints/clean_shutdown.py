"""The .kafka_cleanshutdown file: the last process wrote everything out before it ended."""

from __future__ import annotations

from storage.files.port import FileSystem, write_atomically

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
VERSION = 0
UNKNOWN_BROKER_EPOCH = -1


def read_clean_shutdown(fs: FileSystem, directory: str) -> int | None:
    """The broker epoch of the process that ended cleanly, -1 where it does not say; None after a crash."""
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
    """Once the logs are open, a crash is a crash."""
    path = f"{directory}/{CLEAN_SHUTDOWN}"
    if fs.exists(path):
        fs.unlink(path)
        fs.sync_directory(directory)


def write_clean_shutdown(fs: FileSystem, directory: str, broker_epoch: int) -> None:
    text = f'{{"version":{VERSION},"brokerEpoch":{broker_epoch}}}'
    write_atomically(fs, f"{directory}/{CLEAN_SHUTDOWN}", text.encode())
