"""Object stores: what obstore and a server's answers become."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("obstore")
pytest.importorskip("moto.moto_server.werkzeug_app")

from obstore.store import S3Store

from moldau.storage.tiered.object_options import ObjectStoreOptions
from moldau.storage.tiered.object_storage import ObjectStorage
from moldau.storage.tiered.opening import RetryingStorage, check_storage
from moldau.storage.tiered.port import (
    AccessRefused,
    InvalidStorageUrl,
    RemoteStorageError,
    StorageFull,
    StorageMissing,
    StorageUnavailable,
    WrongCluster,
    get_all,
)
from tests.support.s3_server import S3Server, bucket_of, options_of
from tests.unit.storage.tiered.storages import Chunks, VirtualTime, run

if TYPE_CHECKING:
    from moldau.storage.tiered.port import RemoteStorage


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    opened = S3Server()
    yield opened
    opened.close()


@pytest.fixture
def s3(server: S3Server, request: pytest.FixtureRequest) -> Iterator[ObjectStorage]:
    yield bucket_of(server, request.node.name)
    server.failure = server.failure_count = None
    server.fails_only_writes = False


FAILURES: list[tuple[str, type[RemoteStorageError], str]] = [
    ("expired", AccessRefused, "ExpiredToken"),
    ("denied", AccessRefused, "AccessDenied"),
    ("wrong key", AccessRefused, "InvalidAccessKeyId"),
    ("away", StorageMissing, "bucket of s3://.* does not exist"),
    ("busy", StorageUnavailable, "SlowDown"),
    ("broken", StorageUnavailable, "InternalError"),
    ("full", StorageFull, "is full"),
]


@pytest.mark.parametrize(("failure", "error", "words"), FAILURES)
def test_a_failing_server_is_a_named_error_in_every_call_and_comes_back(
    server: S3Server, s3: ObjectStorage, failure: str, error: type[RemoteStorageError], words: str
) -> None:
    async def story() -> None:
        await s3.put("a", b"1")
        server.failure = failure
        for call in (
            s3.put("a", b"2"),
            s3.put("a", b"2", must_create=True),
            s3.put("a", Chunks(b"x" * (6 << 20))),
            s3.get("a", 0, 1),
            s3.list(""),
            s3.delete(["a"]),
        ):
            with pytest.raises(error, match=words) as caught:
                await call
            assert caught.value.is_transient
        server.failure = None
        assert await get_all(s3, "a", 9) == b"1"

    run(story())


def test_a_server_that_is_busy_for_a_moment_is_asked_again(server: S3Server, s3: ObjectStorage) -> None:
    async def story() -> None:
        time = VirtualTime()
        storage = RetryingStorage(s3, time.sleep, Random(1))
        pieces = Chunks(b"x" * (6 << 20))
        server.failure, server.failure_count = "busy", 2
        await storage.put("a", pieces)
        assert (storage.retry_count, len(time.sleeps)) == (2, 2)
        assert await storage.size("a") == pieces.size

    run(story())


def test_an_upload_whose_content_fails_leaves_no_object(s3: ObjectStorage) -> None:
    class Shorter(Chunks):
        @property
        def size(self) -> int:
            return 7 << 20

    async def story() -> None:
        with pytest.raises(AssertionError):
            await s3.put("a", Shorter(b"x" * (6 << 20)))
        assert await s3.list("") == []

    run(story())


def test_the_check_at_the_start_says_what_is_wrong(server: S3Server, s3: ObjectStorage) -> None:
    async def told(storage: RemoteStorage, cluster_id: str = "ours") -> str:
        try:
            await check_storage(storage, cluster_id, "probe-1")
        except RemoteStorageError as error:
            return f"{type(error).__name__}: {error}"
        return "fine"

    async def story() -> None:
        assert await told(s3) == "fine"
        assert await told(s3, "theirs") == (
            "WrongCluster: this remote storage belongs to the cluster ours, not to theirs"
        )
        assert [each.key for each in await s3.list("")] == ["moldau-cluster.json"]
        server.failure, server.fails_only_writes = "denied", True
        assert "AccessRefused: remote storage can be read, but not be written" in await told(s3)
        server.failure = None
        missing = ObjectStorage("s3://no-such-bucket", options_of(server.endpoint))
        assert "StorageMissing: the bucket of s3://no-such-bucket does not exist" in await told(missing)
        nowhere = ObjectStorage("s3://bucket", options_of("http://127.0.0.1:1"))
        assert "StorageUnavailable: the endpoint of s3://bucket cannot be reached" in await told(nowhere)

    run(story())
    assert issubclass(WrongCluster, RemoteStorageError) and not WrongCluster.is_transient


@pytest.mark.parametrize("url", ["", "bucket", "file:///tmp/x", "memory:///", "ftp://host/x", "s3:/bucket"])
def test_a_url_of_no_object_store_is_refused(url: str) -> None:
    with pytest.raises(InvalidStorageUrl):
        ObjectStorage(url)


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(InvalidStorageUrl, match="colour"):
        ObjectStorage("s3://bucket", ObjectStoreOptions(other={"colour": "blue"}))


def test_the_kinds_of_stores_open_by_their_urls() -> None:
    from obstore.store import AzureStore, GCSStore

    azure = ObjectStoreOptions(other={"account_name": "account"})
    assert isinstance(ObjectStorage("s3://bucket/p")._store, S3Store)
    assert isinstance(ObjectStorage("gs://bucket/p")._store, GCSStore)
    assert isinstance(ObjectStorage("az://container/p", azure)._store, AzureStore)
    with pytest.raises(InvalidStorageUrl, match="Account"):
        ObjectStorage("az://container/p", ObjectStoreOptions())


PROGRAM = """
import time
time.sleep = lambda seconds: print("waits", seconds)
import moldau.storage.tiered.object_storage
print("ends")
"""


def test_a_process_waits_for_the_threads_of_obstore_before_the_interpreter_is_finalized() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True)
    waits = ["waits 0.05"] if sys.version_info < (3, 14) else []
    assert done.stdout.splitlines() == ["ends", *waits]
