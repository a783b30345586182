"""The meta.properties file: the cluster and the node to which a log directory belongs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from moldau.protocol.late_dataclass import dataclass
from moldau.storage.checkpoints.java_properties import MalformedProperties, read_properties
from moldau.storage.checkpoints.partition_metadata import parse_uuid, uuid_text
from moldau.storage.files.port import FileSystem, write_atomically

META_PROPERTIES_FILE = "meta.properties"
VERSION = 1
RESERVED_DIRECTORY_IDS = 100
"""The number of reserved directory ids. They stand for MIGRATING, UNASSIGNED and LOST (KIP-858), not for
directories.
"""
_ESCAPES = {"\\": "\\\\", "=": "\\=", ":": "\\:", "#": "\\#", "!": "\\!", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


class InvalidMetaProperties(ValueError):
    """meta.properties is invalid, so the log directory cannot be served. The message has the reason, and what the
    operator can do.
    """


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The values of a meta.properties file."""

    cluster_id: str
    node_id: int
    directory_id: bytes | None
    """The id of the log directory (KIP-858). None if an early KRaft release formatted the directory: the broker then
    generates one."""


class ZooKeeperMetaProperties(InvalidMetaProperties):
    """meta.properties is from a broker that used ZooKeeper. Programs that only read topics can use the log directory,
    but no node can serve it.
    """

    def __init__(self, path: str, cluster_id: str | None, broker_id: str) -> None:
        super().__init__(
            f"{path}: written by a broker of the ZooKeeper era (version 0, broker.id {broker_id}). Migrate the cluster"
            " to KRaft with Apache Kafka 3.9 first, or use an empty directory"
        )
        self.cluster_id = cluster_id
        self.node_id = int(broker_id) if broker_id.isdecimal() else None


def read_meta_properties(fs: FileSystem, directory: str) -> MetaProperties | None:
    """Read meta.properties; None if the directory is not formatted. Raises `InvalidMetaProperties`, and its subclass
    `ZooKeeperMetaProperties`."""
    path = f"{directory}/{META_PROPERTIES_FILE}"
    if not fs.exists(path):
        return None
    try:
        values = read_properties(fs.read(path).decode("latin-1"))
    except MalformedProperties as error:
        raise InvalidMetaProperties(f"{path}: {error}") from None
    version = values.get("version", "0")
    if not values.keys() & {"version", "broker.id", "node.id", "cluster.id"}:
        raise InvalidMetaProperties(
            f"{path}: the file is damaged, none of its lines names a cluster or a node. Put it back from a copy, or"
            " write it anew with version=1, cluster.id, node.id and directory.id"
        )
    if version == "0":
        raise ZooKeeperMetaProperties(path, values.get("cluster.id"), values.get("broker.id", "missing"))
    if version != str(VERSION):
        raise InvalidMetaProperties(f"{path}: version {version!r} is of a later release; this one reads {VERSION}")
    cluster_id, node_id = values.get("cluster.id", ""), values.get("node.id", "")
    if not cluster_id:
        raise InvalidMetaProperties(f"{path}: cluster.id is missing: format the directory again or restore the file")
    if not node_id.isdecimal():
        raise InvalidMetaProperties(f"{path}: node.id {node_id!r} is not a number from 0 on")
    return MetaProperties(cluster_id, int(node_id), parse_directory_id(path, values.get("directory.id")))


def new_directory_id(entropy: Callable[[int], bytes]) -> bytes:
    """Make the id of a new log directory. Its text does not begin with a dash, which tools take for an option."""
    while True:
        directory_id = entropy(16)
        if int.from_bytes(directory_id, "big") >= RESERVED_DIRECTORY_IDS and directory_id[0] >> 2 != 62:
            return directory_id


def parse_directory_id(path: str, text: str | None) -> bytes | None:
    if text is None:
        return None
    try:
        directory_id = parse_uuid(text)
    except ValueError:
        raise InvalidMetaProperties(f"{path}: directory.id {text!r} is not a uuid") from None
    if int.from_bytes(directory_id, "big") < RESERVED_DIRECTORY_IDS:
        raise InvalidMetaProperties(f"{path}: directory.id {text!r} is a reserved one")
    return directory_id


def write_meta_properties(fs: FileSystem, directory: str, properties: MetaProperties) -> None:
    lines = [f"cluster.id={escape_property(properties.cluster_id)}"]
    if properties.directory_id is not None:
        lines.append(f"directory.id={uuid_text(properties.directory_id)}")
    lines += [f"node.id={properties.node_id}", f"version={VERSION}"]
    write_atomically(fs, f"{directory}/{META_PROPERTIES_FILE}", ("\n".join(lines) + "\n").encode("latin-1"))


def directory_conflict(found: Sequence[tuple[str, MetaProperties]]) -> str | None:
    """Return why the log directories cannot belong to one node, as a text for the operator; None if they can. `found`
    has the path of each directory and its properties."""
    for path, properties in found[1:]:
        first_path, first = found[0]
        if properties.cluster_id != first.cluster_id:
            return f"{path} belongs to cluster {properties.cluster_id}, and {first_path} to {first.cluster_id}"
        if properties.node_id != first.node_id:
            return f"{path} belongs to node {properties.node_id}, and {first_path} to node {first.node_id}"
    seen: dict[bytes, str] = {}
    for path, properties in found:
        if properties.directory_id is not None:
            other = seen.setdefault(properties.directory_id, path)
            if other != path:
                return f"{path} and {other} have the same directory.id: one is a copy of the other"
    return None


def escape_property(text: str) -> str:
    r"""Escape a value so that Java's Properties read it back: special characters get a backslash, and characters past
    ASCII become `\uXXXX`."""
    out = "".join(_ESCAPES.get(c, c) if ord(c) < 0x7F else f"\\u{ord(c):04x}" for c in text)
    return "\\" + out if out.startswith(" ") else out
