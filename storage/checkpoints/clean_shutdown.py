"""The .kafka_cleanshutdown file: it exists where the last process wrote everything to the disk before it ended."""

from __future__ import annotations

from moldau.storage.files.port import FileSystem, write_atomically

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
VERSION = 0
UNKNOWN_BROKER_EPOCH = -1


def read_clean_shutdown(fs: FileSystem, directory: str) -> int | None:
    """The broker epoch of the previous process after a clean shutdown, -1 where the file does not hold one; None after
    a crash."""
    path = f"{directory}/{CLEAN_SHUTDOWN}"
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
    """Remove the file when a directory is opened, so that a later crash does not look like a clean shutdown.

    Raises OSError.
    """
    path = f"{directory}/{CLEAN_SHUTDOWN}"
    if fs.exists(path):
        fs.unlink(path)
        fs.sync_directory(directory)


def write_clean_shutdown(fs: FileSystem, directory: str, broker_epoch: int) -> None:
    """Write the file, as the last step of a clean shutdown. Raises OSError."""
    text = f'{{"version":{VERSION},"brokerEpoch":{broker_epoch}}}'
    write_atomically(fs, f"{directory}/{CLEAN_SHUTDOWN}", text.encode())
