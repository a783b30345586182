"""The errors of remote storage.

Callers distinguish them by class; the message names the object or setting, and the cause.
"""

from __future__ import annotations

from typing import ClassVar

from moldau.protocol.errors import ErrorCode


class RemoteStorageError(Exception):
    """A call to remote storage failed."""

    may_pass: ClassVar[bool] = False
    """Whether the same call may succeed later, without any change here: a job waits and tries again, a fetch is
    answered with a retriable error."""


def error_of(error: RemoteStorageError | OSError) -> ErrorCode:
    """The error code for the client whose read failed. UNKNOWN_SERVER_ERROR, as in Apache Kafka, where a segment is
    damaged or gone: clients log it or raise it. They try again after KAFKA_STORAGE_ERROR without a word.

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
