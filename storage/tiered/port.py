"""The interface of remote storage: all operations on it, and their errors.

There are three implementations: a directory (`directory_storage.py`), object stores (`object_storage.py`), and the
simulated store of the tests, which fails, delays and interrupts calls. `RetryingStorage` (`opening.py`) wraps any of
them. No module here depends on asyncio: an implementation gets its sleep and its randomness from its owner.

Keys are relative paths: parts of the characters A-Z a-z 0-9 . _ - are separated by `/`, and no part is empty or begins
with a dot. Every method raises `RemoteStorageError` and nothing else. A call that is cancelled may have had its effect.
Callers distinguish the errors by class; the message names the object or setting, and the cause.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import ClassVar, NamedTuple, Protocol, TypeAlias, runtime_checkable

from moldau.protocol.errors import ErrorCode
from moldau.protocol.primitives import BytesLike


class ObjectEntry(NamedTuple):
    """One object in a listing of the storage."""

    key: str
    size: int
    """The size of the object in bytes."""
    modified_ms: int = 0
    """The time of the put, by the clock of the storage (ms since the epoch)."""


class ChunkedContent(Protocol):
    """The content of an object in pieces, because a segment is too large to hold in memory."""

    @property
    def size(self) -> int:
        """The total size of all pieces in bytes."""

    def chunks(self) -> AsyncIterator[BytesLike]:
        """Yield the pieces, none of them empty. A repeated put calls this again, and gets all pieces from the first one
        on."""


Content: TypeAlias = bytes | ChunkedContent


class RemoteStorage(Protocol):
    """A flat space of objects that are written once and never changed."""

    async def put(self, key: str, content: Content, *, must_create: bool = False) -> None:
        """Write a whole object, or nothing: no reader ever sees a part of it. Once this has returned, the object is
        durable, and `get` and `size` find it.

        An existing object with this key is replaced. With `must_create` it stays, and this raises `ObjectExists`; the
        content must then be small and of type bytes. After `StorageUnavailable` the object may have been written.
        """

    async def get(self, key: str, position: int, size: int) -> BytesLike:
        """Read up to `size` bytes of an object from `position` on; fewer only at the end of the object. Raises
        `ObjectNotFound`."""

    async def get_parts(self, key: str, position: int, size: int) -> Sequence[BytesLike]:
        """Read as `get` does, but return the bytes in the buffers in which they arrived. For megabytes this saves a
        copy."""

    async def size(self, key: str) -> int:
        """The size of an object in bytes. Raises `ObjectNotFound`."""

    async def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> Sequence[ObjectEntry]:
        """Return up to `limit` objects whose keys begin with `prefix` and are greater than `after`, in the order of
        their keys. If there are fewer than `limit`, no more follow. The prefix ends with `/` or is empty. A listing may
        not show recent puts and deletions yet.
        """

    async def list_directories(self, prefix: str) -> Sequence[str]:
        """Return the prefixes one level below `prefix`, sorted: of each key that begins with `prefix`, the part up to
        and including the next `/`. `prefix` ends with `/` or is empty.
        """

    async def delete(self, keys: Sequence[str]) -> None:
        """Remove objects. It is not an error if an object does not exist. After an error some of them
        may be removed."""

    async def close(self) -> None:
        """Close connections and files. Closing twice is allowed."""


class Upload(Protocol):
    """An object that is written before its key is known. It has no key, and no listing shows it, until `complete`."""

    def write(self, data: BytesLike, /) -> None:
        """Append bytes to the object. It blocks."""

    async def complete(self, key: str) -> None:
        """Give the object its key, as `put` does: then it is durable. An existing object with this key is replaced."""

    def discard(self) -> None:
        """Remove the object, unless it is complete. Discarding twice is allowed."""


@runtime_checkable
class Uploads(Protocol):
    """The part of a storage that can write an object before its key is known. An object store cannot."""

    def begin_upload(self) -> Upload:
        """Begin an object."""


async def list_all(storage: RemoteStorage, prefix: str, *, page_size: int = 1000) -> AsyncIterator[ObjectEntry]:
    """Yield all objects whose keys begin with `prefix`, by key, reading page by page. Raises `RemoteStorageError`."""
    after = ""
    while page := await storage.list(prefix, after=after, limit=page_size):
        for entry in page:
            yield entry
        after = page[-1].key


def directories_of(keys: Iterable[str], prefix: str) -> list[str]:
    """The prefixes one level below `prefix` of some keys, for a storage that has all keys in memory."""
    below = (key[len(prefix) :].partition("/") for key in keys if key.startswith(prefix))
    return sorted({f"{prefix}{name}/" for name, slash, _ in below if slash})


async def get_all(storage: RemoteStorage, key: str, size_max: int) -> bytes:
    """Read a small object as a whole, or its first `size_max` bytes. Raises `RemoteStorageError`."""
    return bytes(await storage.get(key, 0, size_max))


async def content_bytes(content: Content) -> bytes:
    """Return all bytes of a content, for an implementation that needs them at once."""
    if isinstance(content, bytes):
        return content
    return b"".join([bytes(chunk) async for chunk in content.chunks()])


class RemoteStorageError(Exception):
    """A call to remote storage failed."""

    is_transient: ClassVar[bool] = False
    """Whether the same call may succeed later. Jobs then try again, and fetches get a retriable error."""


def error_code_of_storage_error(error: RemoteStorageError | OSError) -> ErrorCode:
    """Return the error code for a client whose read failed: UNKNOWN_SERVER_ERROR if a segment is damaged or gone, as in
    Apache Kafka, otherwise KAFKA_STORAGE_ERROR. Clients log or raise the first one; after the second one they try again
    without a message.

    DIVERGES: Apache Kafka answers UNKNOWN_SERVER_ERROR also while the storage does not answer.
    """
    is_permanent = isinstance(error, RemoteStorageError) and not error.is_transient
    return ErrorCode.UNKNOWN_SERVER_ERROR if is_permanent else ErrorCode.KAFKA_STORAGE_ERROR


class StorageUnavailable(RemoteStorageError):
    """The storage did not answer, or asked for a retry: no connection, a time-out, a server error, throttling.

    The call may have had its effect all the same.
    """

    is_transient = True


class AccessRefused(RemoteStorageError):
    """The credentials are missing, wrong or expired, or do not allow this call. The error may pass, because each call
    looks up the credentials again."""

    is_transient = True


class StorageMissing(RemoteStorageError):
    """The bucket, the container or the root directory does not exist, or is not mounted."""

    is_transient = True


class StorageFull(RemoteStorageError):
    """The storage has no space left, or a quota is used up. Reads and deletions still work."""

    is_transient = True


class ObjectNotFound(RemoteStorageError):
    """No object has this key."""


class ObjectExists(RemoteStorageError):
    """A put with `must_create` found an object with this key."""


class CorruptObject(RemoteStorageError):
    """An object is not what its manifest or its format says, so nothing may be served from it."""


class WrongCluster(RemoteStorageError):
    """The storage, or an object in it, belongs to another cluster, so nothing may be served from it or
    written to it."""


class InvalidStorageUrl(RemoteStorageError):
    """The URL of the setting does not name a storage that can be opened."""
