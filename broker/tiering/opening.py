"""Opens the remote storage of a broker, and checks it at the start of the broker."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from moldau.broker.config.config import Config
from moldau.broker.config.tiering import object_store_options
from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.tasks import Spawn
from moldau.storage.checkpoints.partition_metadata import uuid_text
from moldau.storage.tiered.opening import check_storage
from moldau.storage.tiered.port import RemoteStorage, RemoteStorageError, StorageUnavailable

log = logging.getLogger("moldau.tiering")

RECHECK_S: Final = 30.0
"""The interval (seconds) at which a storage that was not available at the start is checked again."""


class RemoteStorageRefused(OSError):
    """The broker cannot start with this remote storage; the text says why."""


class OpenStorage:
    """The remote storage of the broker. It is neither read nor written before it has been checked."""

    def __init__(self, config: Config, environment: Environment, cluster_id: str) -> None:
        """Make the client of the storage, without a request to the storage. Raises `RemoteStorageRefused` if
        `moldau.tiered.storage` names no storage that can be opened.
        """
        self.url = config.text("moldau.tiered.storage")
        self.cluster_id = cluster_id
        self._environment = environment
        try:
            self.storage: RemoteStorage = environment.remote_storage(self.url, object_store_options(config))
        except RemoteStorageError as error:
            raise RemoteStorageRefused(f"moldau.tiered.storage={self.url}: {error}") from error
        self.is_checked = False
        """Whether the storage works and belongs to this cluster."""

    async def check(self, spawn: Spawn) -> None:
        """Check that the storage works and belongs to this cluster.

        If the storage is not available now, the broker starts nevertheless, serves local segments, and checks again at
        intervals; until then no segment is copied or read. Raises `RemoteStorageRefused` for any other problem: another
        cluster's storage, a missing bucket, refused credentials.
        """
        try:
            await self._check()
        except StorageUnavailable as error:
            log.error("remote storage %s is not available; the broker starts without it: %s", self.url, error)
            spawn(self._check_again(), "remote-storage-check")
        except RemoteStorageError as error:
            raise RemoteStorageRefused(f"moldau.tiered.storage={self.url}: {error}") from error

    async def _check(self) -> None:
        await check_storage(self.storage, self.cluster_id, uuid_text(self._environment.entropy(16)))
        self.is_checked = True
        log.info("remote storage %s is ready", self.url)

    async def _check_again(self) -> None:
        while not self.is_checked:
            await asyncio.sleep(RECHECK_S)
            try:
                await self._check()
            except RemoteStorageError as error:
                log.error("remote storage %s cannot be used yet: %s", self.url, error)
