"""The storage port: all operations on remote storage, and their errors.

Three implementations: a directory (`directory_storage.py`), object stores (`object_storage.py`), and the simulated
store of the tests, which fails, delays and interrupts calls. `RetryingStorage` (`opening.py`) wraps any of them.
Nothing here knows asyncio: an implementation gets its sleep and its randomness from its owner.

Keys are relative, of the letters A-Z a-z 0-9 . _ - in parts separated by `/`; no part is empty or begins with a dot.
Every method raises `RemoteStorageError` and nothing else. A call that is cancelled may have had its effect. Callers
distinguish the errors by class; the message names the object or setting, and the cause.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import ClassVar, NamedTuple, Protocol, TypeAlias

from moldau.protocol.errors import ErrorCode
from moldau.protocol.primitives import BytesLike


class ObjectEntry(NamedTuple):
    """An object in a listing."""

    key: str
    size: int
    """Size in bytes."""
    modified_ms: int = 0
    """Time of the put, by the clock of the storage (ms since the epoch)."""


class ChunkedContent(Protocol):
    """Content of an object in pieces: a segment is too large to hold in memory."""

    @property
    def size(self) -> int:
        """Total size of all pieces in bytes."""

    def chunks(self) -> AsyncIterator[BytesLike]:
        """The pieces, none of them empty. A repeated put asks for them again, from the first one."""


Content: TypeAlias = bytes | ChunkedContent


class RemoteStorage(Protocol):
    """A flat space of objects that are written once and never changed."""

    async def put(self, key: str, content: Content, *, must_create: bool = False) -> None:
        """Write a whole object, or nothing: no reader ever sees a part of it. Once this has returned, the object is
        durable, and `get` and `size` find it.

        An object of the same key is replaced; with `must_create` it stays, and this raises `ObjectExists`. The content
        of such a put is small and of type bytes. After `StorageUnavailable` the object may be there.
        """

    async def get(self, key: str, position: int, size: int) -> BytesLike:
        """Read up to `size` bytes from a position; fewer only at the end of the object. Raises `ObjectNotFound`."""

    async def get_parts(self, key: str, position: int, size: int) -> Sequence[BytesLike]:
        """What `get` returns, in the buffers in which it arrived: for megabytes, which are then not copied together."""

    async def size(self, key: str) -> int:
        """Size of an object in bytes. Raises `ObjectNotFound`."""

    async def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> Sequence[ObjectEntry]:
        """Return up to `limit` objects whose key begins with a prefix and is greater than `after`, in the order of
        their keys. An empty list means that there are no more. The prefix ends with `/` or is empty. The list may be
        behind puts and deletions.
        """

    async def delete(self, keys: Sequence[str]) -> None:
        """Remove objects. One that does not exist is not an error. After an error some of them may be gone."""

    async def close(self) -> None:
        """Close connections and files. Closing twice is allowed."""


async def list_all(storage: RemoteStorage, prefix: str, *, page_size: int = 1000) -> AsyncIterator[ObjectEntry]:
    """All objects of a prefix, by key, page by page. Raises `RemoteStorageError`."""
    after = ""
    while page := await storage.list(prefix, after=after, limit=page_size):
        for entry in page:
            yield entry
        after = page[-1].key


async def get_all(storage: RemoteStorage, key: str, size_max: int) -> bytes:
    """A whole small object, at most `size_max` bytes of it. Raises `RemoteStorageError`."""
    return bytes(await storage.get(key, 0, size_max))


async def content_bytes(content: Content) -> bytes:
    """All bytes of some content, for an implementation that needs them at once."""
    if isinstance(content, bytes):
        return content
    return b"".join([bytes(chunk) async for chunk in content.chunks()])


class RemoteStorageError(Exception):
    """A call to remote storage failed."""

    may_pass: ClassVar[bool] = False
    """Whether the same call may succeed later, without any change here: a job waits and tries again, a fetch is
    answered with a retriable error."""


def error_of(error: RemoteStorageError | OSError) -> ErrorCode:
    """Return the error code for a client whose read failed.

    If a segment is damaged or gone it is UNKNOWN_SERVER_ERROR, as in Apache Kafka, which clients log or raise. After
    KAFKA_STORAGE_ERROR they try again without a message.

    DIVERGES: Apache Kafka answers UNKNOWN_SERVER_ERROR also while the storage does not answer.
    """
    is_permanent = isinstance(error, RemoteStorageError) and not error.may_pass
    return ErrorCode.UNKNOWN_SERVER_ERROR if is_permanent else ErrorCode.KAFKA_STORAGE_ERROR


class StorageUnavailable(RemoteStorageError):
    """No answer, or one that asks for a retry: no connection, a time-out, a server error, throttling.

    The call may have had its effect all the same.
    """

    may_pass = True


class AccessRefused(RemoteStorageError):
    """The credentials are missing, wrong or expired, or do not allow this call. The error may pass: each call looks the
    credentials up again."""

    may_pass = True


class StorageMissing(RemoteStorageError):
    """The bucket, the container or the root directory does not exist, or is not mounted."""

    may_pass = True


class StorageFull(RemoteStorageError):
    """No space is left, or a quota is used up. Reads and deletions still work."""

    may_pass = True


class ObjectNotFound(RemoteStorageError):
    """There is no object of this key."""


class ObjectExists(RemoteStorageError):
    """A put with `must_create` found an object of this key."""


class CorruptObject(RemoteStorageError):
    """An object is not what its manifest or its format says: nothing may be served from it."""


class WrongCluster(RemoteStorageError):
    """The storage, or an object in it, belongs to another cluster: nothing may be served from it or written to it."""


class InvalidStorageUrl(RemoteStorageError):
    """The setting does not name a storage that can be opened."""
