"""Opens the remote storage that a URL names: a directory, or an object store."""

from __future__ import annotations

from random import Random
from typing import Final

from moldau.storage.tiered.errors import InvalidStorageUrl
from moldau.storage.tiered.object_options import ObjectStoreOptions
from moldau.storage.tiered.port import RemoteStorage
from moldau.storage.tiered.retrying import RetryingStorage, RetryPolicy, Sleep

FILE_SCHEME: Final = "file://"
MISSING_EXTRA: Final = "{} needs the package {}: install moldau[tiered]"


def open_storage(
    url: str,
    random: Random,
    sleep: Sleep,
    *,
    options: ObjectStoreOptions | None = None,
    policy: RetryPolicy | None = None,
) -> RetryingStorage:
    """The storage of a URL, with retries; `check_storage` tests whether it works.

    An absolute path, or `file://` and one, is a directory; anything else is the URL of an object store. Raises
    `InvalidStorageUrl`, also where the package for it is not installed: it is an extra, imported here.
    """
    path = url.removeprefix(FILE_SCHEME)
    opened = _directory(path, random) if path.startswith("/") else _object_store(url, options)
    return RetryingStorage(opened, sleep, random, policy)


def _directory(path: str, random: Random) -> RemoteStorage:
    try:
        from moldau.storage.tiered.directory_storage import DirectoryStorage
    except ImportError as error:
        raise InvalidStorageUrl(MISSING_EXTRA.format(path, error.name)) from error
    return DirectoryStorage(path, random)


def _object_store(url: str, options: ObjectStoreOptions | None) -> RemoteStorage:
    try:
        from moldau.storage.tiered.object_storage import ObjectStorage
    except ImportError as error:
        raise InvalidStorageUrl(MISSING_EXTRA.format(url, error.name)) from error
    return ObjectStorage(url, options)
