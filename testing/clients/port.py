"""The interface of the Kafka clients through which the conveniences of a cluster work, the same for each client
library.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

Text = str | bytes
Headers = Mapping[str, Text] | Sequence[tuple[str, Text]]


class NoClient(ImportError):
    """Raised if no client library is installed that can do what the test requests."""


class Partition(NamedTuple):
    """A partition of a topic. It equals the tuple `("orders", 0)`."""

    topic: str
    number: int


class Permission(NamedTuple):
    """An ACL that allows a user an operation on a resource."""

    user: str
    operation: str
    kind: str
    """TOPIC or GROUP."""
    name: str
    """The literal name of the resource, or "*" for all."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record with its topic, partition and offset. The timestamp is in milliseconds since 1970."""

    topic: str
    partition: int
    offset: int
    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = -1


class Client(Protocol):
    """The Kafka client of a test cluster, which creates topics, and writes and reads records for the test. Each
    supported client library has its own implementation. Every method blocks, and may raise the library's own exceptions
    and TimeoutError.
    """

    def create_topic(self, name: str, partitions: int, replicas: int, settings: Mapping[str, str]) -> None:
        """Create a topic."""

    def delete_topics(self, names: Sequence[str], *, waits: bool = True) -> None:
        """Delete topics; if `waits` is true, wait until the cluster has deleted them."""

    def topics(self) -> list[str]:
        """The names of all topics but internal ones, sorted."""

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: list[tuple[str, bytes | None]],
        partition: int | None,
        timestamp_ms: int | None,
    ) -> Record:
        """Write a record, and wait until all in-sync replicas have it."""

    def ends(self, topic: str) -> dict[int, int]:
        """The last stable offset of each partition of a topic; empty for a topic that does not exist."""

    def read(self, topic: str, begins: Mapping[int, int], ends: Mapping[int, int], timeout_s: float) -> list[Record]:
        """The committed records of a topic, partition by partition. `begins` has the first offset of each partition (0
        if a partition is missing there), and `ends` the offset before which to stop."""

    def committed(self, group: str) -> dict[Partition, int]:
        """The committed offsets of a group, by partition."""

    def allow(self, permission: Permission) -> None:
        """Create the ACL of a permission."""

    def take_back(self, permissions: Sequence[Permission]) -> None:
        """Delete the ACLs of permissions, as far as they exist."""

    def close(self) -> None:
        """Close the connections."""


def record_of(message: Any) -> Record:
    """Convert a message of kafka-python or aiokafka, whose fields have the same names, to a `Record`."""
    return Record(
        message.topic,
        message.partition,
        message.offset,
        message.value,
        message.key,
        tuple(message.headers),
        message.timestamp,
    )


def not_acknowledged(topic: str) -> TimeoutError:
    """The error that is raised for a record that was not acknowledged in time."""
    return TimeoutError(
        f"the record for {topic} was not acknowledged in time, and may be written later: is the node that leads its"
        " partition paused, ended or cut off?"
    )


def as_bytes(given: object, what: str) -> bytes | None:
    """Encode a text in UTF-8; bytes and None are returned unchanged. Raises TypeError for any other type; `what` names
    the argument in its message."""
    if isinstance(given, str):
        return given.encode()
    if given is None or isinstance(given, bytes):
        return given
    if isinstance(given, bytearray | memoryview):
        return bytes(given)
    raise TypeError(f"{what} is of type {type(given).__name__}: text or bytes are needed, such as json.dumps(...)")


def header_list(headers: Headers | None) -> list[tuple[str, bytes | None]]:
    """The headers as a list of pairs in their order, with values as bytes. Raises TypeError."""
    pairs = list(headers.items() if isinstance(headers, Mapping) else headers or ())
    if not all(isinstance(pair, tuple | list) and len(pair) == 2 and isinstance(pair[0], str) for pair in pairs):
        raise TypeError(f'headers is {headers!r}: a dictionary or pairs are needed, such as {{"trace": "1"}}')
    return [(name, as_bytes(value, f"the header {name}")) for name, value in pairs]
