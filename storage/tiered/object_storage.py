"""Remote storage in an object store, through obstore: S3 and compatible stores, Google Cloud Storage, Azure Blob
Storage.

`moldau.tiered.storage` names the store: `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`. What the
URL does not say (region, endpoint, credentials) obstore finds in the usual places: the environment variables
(AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_KEY and others), a web
identity, the metadata service of a container or an instance. It renews credentials before they expire.

A large object is uploaded in parts, several at a time, and appears when the last part is uploaded. Parts of an
interrupted upload stay in the bucket, and no listing shows them: give the bucket a lifecycle rule that removes
incomplete uploads after a day.
"""

from __future__ import annotations

import atexit
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, cast

import obstore
from obstore import exceptions, store

from moldau.protocol.primitives import BytesLike
from moldau.storage.tiered.object_options import S3_SCHEMES, SCHEMES, ObjectStoreOptions
from moldau.storage.tiered.port import (
    AccessRefused,
    ChunkedContent,
    Content,
    InvalidStorageUrl,
    ObjectEntry,
    ObjectExists,
    ObjectNotFound,
    RemoteStorageError,
    StorageFull,
    StorageMissing,
    StorageUnavailable,
)

if TYPE_CHECKING:
    from obstore import GetOptions
    from obstore.store import ObjectStore

MISSING: Final = ("NoSuchBucket", "ContainerNotFound", "The specified bucket does not exist", "ContainerBeingDeleted")
REFUSED: Final = (
    *("ExpiredToken", "TokenRefreshRequired", "InvalidToken", "InvalidAccessKeyId", "SignatureDoesNotMatch"),
    *("AuthenticationFailed", "RequestExpired", "AccessDenied", "403 Forbidden", "401 Unauthorized", "redentials"),
)
FULL: Final = ("507 Insufficient Storage", "QuotaExceeded", "StorageFull", "InsufficientStorage")
PAST_THE_END: Final = ("416 ", "InvalidRange", "Wanted range starting at")
UNREACHABLE: Final = ("kind: Connect", "error sending request")
REASON_LENGTH_MAX: Final = 400
LAST_CALLBACKS_S: Final = 0.05
"""The time (seconds) for which a process that has imported this module waits at its end, with Python up to 3.13.

A thread of obstore 0.12 takes the interpreter's lock once more after the answer to a request. Before Python 3.14
finalization stops a thread that does so, and stopping it aborts the process: 12 of 200 scripts that ended right after a
read. While the main thread waits, the other thread gets the lock.
"""
if sys.version_info < (3, 14):
    atexit.register(time.sleep, LAST_CALLBACKS_S)

PART_SIZE: Final = 2 << 20
"""The size (bytes) of a buffer of `get_parts`. The allocator keeps the memory of buffers of this size, and returns that
of larger ones to the system."""


class ObjectStorage:
    """A `RemoteStorage` in a bucket or container."""

    def __init__(self, url: str, options: ObjectStoreOptions | None = None) -> None:
        """Make the client of the storage, without a request to it; `check_storage` tests the access. Raises
        `InvalidStorageUrl`."""
        self._url = url
        self._options = options or ObjectStoreOptions()
        self._store = open_store(url, self._options)

    async def put(self, key: str, content: Content, *, must_create: bool = False) -> None:
        options = self._options
        with self._errors(key):
            if must_create:
                assert isinstance(content, bytes)
                await obstore.put_async(self._store, key, content, mode="create")
            elif isinstance(content, bytes) and len(content) <= options.part_size:
                await obstore.put_async(self._store, key, content, use_multipart=False)
            else:
                await obstore.put_async(
                    self._store,
                    key,
                    content if isinstance(content, bytes) else _checked(content),
                    chunk_size=options.part_size,
                    max_concurrency=options.parts_at_once,
                )

    async def get(self, key: str, position: int, size: int) -> BytesLike:
        if size <= 0:
            await self.size(key)
            return b""
        with self._errors(key):
            try:
                data = await obstore.get_range_async(self._store, key, start=position, length=size)
            except exceptions.GenericError as error:
                if any(each in str(error) for each in PAST_THE_END):
                    return b""
                raise
            return memoryview(data)

    async def get_parts(self, key: str, position: int, size: int) -> Sequence[BytesLike]:
        options: GetOptions = {"range": (position, position + size)}
        with self._errors(key):
            try:
                answer = await obstore.get_async(self._store, key, options=options)
                return [memoryview(part) async for part in answer.stream(min_chunk_size=PART_SIZE)]
            except exceptions.GenericError as error:
                if any(each in str(error) for each in PAST_THE_END):
                    return []
                raise

    async def size(self, key: str) -> int:
        with self._errors(key):
            try:
                return int((await obstore.head_async(self._store, key))["size"])
            except FileNotFoundError:
                # The answer to a HEAD has no body that would tell a missing object from a missing bucket.
                await self.list("", limit=1)
                raise

    async def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> Sequence[ObjectEntry]:
        found: list[ObjectEntry] = []
        with self._errors(prefix):
            pages = obstore.list(self._store, prefix or None, offset=after or None, chunk_size=min(limit, 1000))
            async for page in pages:
                entries = [
                    ObjectEntry(each["path"], each["size"], round(each["last_modified"].timestamp() * 1000))
                    for each in page
                ]
                # obstore takes a prefix as whole parts of a path, and stores other than S3 may list in another order.
                found += [each for each in entries if each.key.startswith(prefix) and each.key > after]
                if len(found) >= limit:
                    break
        return sorted(found)[:limit]

    async def list_directories(self, prefix: str) -> Sequence[str]:
        with self._errors(prefix):
            answer = await obstore.list_with_delimiter_async(self._store, prefix or None)
        return sorted(each.rstrip("/") + "/" for each in answer["common_prefixes"])

    async def delete(self, keys: Sequence[str]) -> None:
        with self._errors(", ".join(keys)):
            try:
                await obstore.delete_async(self._store, list(keys))
            except FileNotFoundError as error:
                if any(each in str(error) for each in MISSING):
                    raise
                # This store reports a missing object as an error, and may have kept the keys after it.
                for key in keys:
                    await self._delete_one(key)

    async def close(self) -> None:
        """Do nothing: obstore closes its connections when the store is dropped."""

    async def _delete_one(self, key: str) -> None:
        try:
            await obstore.delete_async(self._store, key)
        except FileNotFoundError as error:
            if any(each in str(error) for each in MISSING):
                raise

    @contextmanager
    def _errors(self, key: str) -> Iterator[None]:
        """Turn an error of obstore in the body into the error of the interface `RemoteStorage`."""
        try:
            yield
        except (exceptions.BaseError, FileNotFoundError, PermissionError, TimeoutError) as error:
            raise storage_error(self._url, key, error) from error


def open_store(url: str, options: ObjectStoreOptions) -> ObjectStore:
    """Make obstore's client for a URL. Raises `InvalidStorageUrl`."""
    scheme = url.partition("://")[0]
    if scheme not in SCHEMES:
        raise InvalidStorageUrl(f"{url!r} is none of {', '.join(f'{each}://' for each in SCHEMES)}")
    config = dict(options.other)
    if scheme in S3_SCHEMES and options.has_checksums:
        config.setdefault("checksum_algorithm", "SHA256")
    if options.endpoint is not None:
        config["endpoint"] = options.endpoint
    if options.region is not None:
        config["region"] = options.region
    is_http = options.endpoint is not None and options.endpoint.startswith("http://")
    try:
        # obstore types the options by kind of store, and here only the URL says which kind it is.
        opened = cast("Any", store.from_url)(
            url,
            config=config,
            client_options={"allow_http": is_http, "timeout": timedelta(seconds=options.timeout_s)},
            retry_config={
                "max_retries": options.retry_count,
                "retry_timeout": timedelta(seconds=options.timeout_s),
                "backoff": {
                    "init_backoff": timedelta(milliseconds=100),
                    "max_backoff": timedelta(seconds=2),
                    "base": 2,
                },
            },
        )
    except (exceptions.BaseError, ValueError) as error:
        raise InvalidStorageUrl(f"{url!r}: {reason_of(error)}") from error
    return cast("ObjectStore", opened)


def storage_error(url: str, key: str, error: Exception) -> RemoteStorageError:
    """Return the `RemoteStorageError` for an error of obstore.

    It is chosen by the text of the error, which includes the server's answer, because obstore's classes are less
    precise.
    """
    text = str(error)
    reason = reason_of(error)
    if any(each in text for each in MISSING):
        return StorageMissing(f"the bucket of {url} does not exist: {reason}")
    if isinstance(error, exceptions.AlreadyExistsError | exceptions.PreconditionError):
        return ObjectExists(f"{key} exists")
    if isinstance(error, FileNotFoundError):
        return ObjectNotFound(f"{key} does not exist in {url}")
    if isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError | PermissionError) or any(
        each in text for each in REFUSED
    ):
        return AccessRefused(f"{url} refused the credentials, or they do not allow this: {reason}")
    if any(each in text for each in FULL):
        return StorageFull(f"{url} is full: {reason}")
    if any(each in text for each in UNREACHABLE):
        return StorageUnavailable(f"the endpoint of {url} cannot be reached: {reason}")
    return StorageUnavailable(f"{url}: {reason}")


def reason_of(error: Exception) -> str:
    """The message of an error of obstore, without its dump of the request."""
    return " ".join(str(error).partition("\nDebug source:")[0].split())[:REASON_LENGTH_MAX]


async def _checked(content: ChunkedContent) -> AsyncIterator[BytesLike]:
    """Yield the chunks of a content, and assert at the end that they have the size of the content. If the assertion
    fails, the put fails, and no object appears."""
    size = 0
    async for chunk in content.chunks():
        size += len(chunk)
        yield chunk
    assert size == content.size, f"the content has {size} bytes, not {content.size}"
