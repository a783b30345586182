"""The partition.metadata file: the id of the topic to which a partition directory belongs."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode

from moldau.storage.files.log_paths import PARTITION_METADATA
from moldau.storage.files.open_files import OpenFile
from moldau.storage.files.port import FileSystem

VERSION = 0
ZERO_ID = bytes(16)


class CorruptPartitionMetadata(ValueError):
    """A partition.metadata file does not name a topic id. The message has the path and the reason."""


def uuid_text(uuid: bytes) -> str:
    """Kafka's text of a UUID of 16 bytes: URL-safe base64 without padding, 22 characters."""
    return urlsafe_b64encode(uuid).decode().rstrip("=")


def parse_uuid(text: str) -> bytes:
    """Parse Kafka's text of a UUID into 16 bytes. Raises ValueError for any other text."""
    uuid = urlsafe_b64decode(text + "==")
    if len(text) != 22 or len(uuid) != 16:
        raise ValueError(f"{text!r} is not a uuid")
    return uuid


def read_topic_id(fs: FileSystem, directory: str) -> bytes | None:
    """Read the topic id of a partition directory; None if it has no partition.metadata. Raises OSError and
    `CorruptPartitionMetadata`."""
    path = f"{directory}/{PARTITION_METADATA}"
    if not fs.exists(path):
        return None
    values: dict[str, str] = {}
    for line in fs.read(path).decode(errors="replace").splitlines():
        name, colon, value = line.partition(":")
        if not colon:
            raise CorruptPartitionMetadata(f"{path}: {line!r} is not a name and a value")
        values[name.strip()] = value.strip()
    version, topic_id = values.get("version", ""), values.get("topic_id", "")
    if not version.isdecimal():
        raise CorruptPartitionMetadata(f"{path}: version {version!r}")
    try:
        uuid = parse_uuid(topic_id)
    except ValueError:
        raise CorruptPartitionMetadata(f"{path}: topic_id {topic_id!r} is not a uuid") from None
    if uuid == ZERO_ID:
        raise CorruptPartitionMetadata(f"{path}: the zero uuid names no topic")
    return uuid


def write_topic_id(fs: FileSystem, directory: str, topic_id: bytes) -> str:
    """Write the partition.metadata file of a partition directory. Returns the path of the file, which the caller has to
    sync. Raises OSError, and then leaves no file."""
    assert len(topic_id) == 16 and topic_id != ZERO_ID
    path = f"{directory}/{PARTITION_METADATA}"
    opened = OpenFile(fs.open(path, create=True))
    try:
        opened.file.truncate(0)
        opened.file.append([f"version: {VERSION}\ntopic_id: {uuid_text(topic_id)}".encode()])
    except OSError:
        fs.unlink(path)
        raise
    return path
