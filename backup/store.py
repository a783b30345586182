"""A backup store: the backups of one cluster in a directory or an object store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime
from typing import Final, NamedTuple

from moldau.backup.cutting import CutPiece, MemoryContent
from moldau.backup.layout import (
    BACKUPS_PREFIX,
    METADATA_PREFIX,
    PIECES_PREFIX,
    STORE_MANIFEST_KEY,
    UNFINISHED_PREFIX,
    backup_id_of,
    backup_key,
    metadata_key,
    piece_key,
    unfinished_key,
)
from moldau.backup.manifest import MANIFEST_SIZE_MAX, BackupManifest, MetadataPiece, PartitionKey, decode_manifest
from moldau.backup.sources.port import MetadataSnapshot
from moldau.protocol.primitives import crc32c
from moldau.storage.tiered.manifest import decode_cluster_manifest, encode_cluster_manifest
from moldau.storage.tiered.port import (
    ObjectEntry,
    ObjectExists,
    ObjectNotFound,
    RemoteStorage,
    RemoteStorageError,
    Upload,
    Uploads,
    WrongCluster,
    get_all,
    list_all,
)

STORE_MANIFEST_SIZE_MAX: Final = 1 << 16
DELETED_KEYS_MAX: Final = 1000


class NotABackupStore(RemoteStorageError):
    """Raised if the address has no backups: it is empty, or has other objects."""


class NoSuchBackup(RemoteStorageError):
    """Raised if the store has no backup with an id."""


class UnfinishedRun(NamedTuple):
    """A backup run that is in progress or was interrupted, with the manifest of the pieces that it has written."""

    key: str
    modified_ms: int
    manifest: BackupManifest


class BackupStore:
    """The backups of one cluster in a directory or an object store. Every method raises `RemoteStorageError`."""

    def __init__(self, storage: RemoteStorage, uploads: Uploads | None = None) -> None:
        """`uploads` writes an object whose key is not known yet: the key of a piece is known when the piece is
        complete. None if the storage cannot do that; pieces are then kept in memory."""
        self.storage = storage
        self._uploads = uploads

    async def read_cluster_id(self) -> str:
        """Read the id of the cluster whose backups are in the store. Raises `NotABackupStore`."""
        try:
            data = await get_all(self.storage, STORE_MANIFEST_KEY, STORE_MANIFEST_SIZE_MAX)
        except ObjectNotFound:
            raise NotABackupStore(f"there are no backups here: {STORE_MANIFEST_KEY} does not exist") from None
        return decode_cluster_manifest(STORE_MANIFEST_KEY, data)

    async def claim_for_cluster(self, cluster_id: str) -> None:
        """Make an empty storage the backup store of a cluster, or check that it already is. Raises `NotABackupStore` if
        the storage has other objects, and `WrongCluster`.
        """
        try:
            owner = await self.read_cluster_id()
        except NotABackupStore:
            if await self.storage.list("", limit=1):
                raise NotABackupStore(
                    f"the store has other objects and no {STORE_MANIFEST_KEY}: give an empty directory or prefix"
                ) from None
            try:
                await self.storage.put(STORE_MANIFEST_KEY, encode_cluster_manifest(cluster_id), must_create=True)
                return
            except ObjectExists:
                owner = await self.read_cluster_id()
        if owner != cluster_id:
            raise WrongCluster(f"the backups here are of the cluster {owner}, and this is {cluster_id}")

    # Manifests

    async def backup_ids(self) -> list[str]:
        """The ids of the backups in the store, the oldest first."""
        return sorted([backup_id_of(each.key) async for each in list_all(self.storage, BACKUPS_PREFIX)], key=_age)

    async def read_manifest(self, backup_id: str) -> BackupManifest:
        """Read the manifest of a backup. Raises `NoSuchBackup`, and `CorruptObject`."""
        key = backup_key(backup_id)
        try:
            data = await get_all(self.storage, key, MANIFEST_SIZE_MAX)
        except ObjectNotFound:
            raise NoSuchBackup(f"there is no backup {backup_id}: --list shows those that are there") from None
        return decode_manifest(key, data)

    async def read_latest_manifest(self) -> BackupManifest | None:
        """Read the manifest of the newest backup. Returns None if the store has no backup."""
        known = await self.backup_ids()
        return await self.read_manifest(known[-1]) if known else None

    async def new_backup_id(self, now_ms: int) -> str:
        """Make a backup id: the time in seconds, and a number that is higher than the numbers of the other ids of that
        second."""
        moment = datetime.fromtimestamp(now_ms // 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
        taken = [
            *await self.backup_ids(),
            *[backup_id_of(key) async for key, *_ in list_all(self.storage, UNFINISHED_PREFIX)],
        ]
        numbers = [number for begun, number in map(_age, taken) if begun == moment]
        return f"{moment}-{max(numbers, default=0) + 1}"

    async def put_manifest(self, manifest: BackupManifest) -> None:
        """Complete a backup: write its manifest. All objects that the manifest names must be in the store. Raises
        `ObjectExists` if another run took the id of the backup."""
        await self.storage.put(backup_key(manifest.backup_id), manifest.encode(), must_create=True)

    # Unfinished runs

    async def unfinished_runs(self) -> list[UnfinishedRun]:
        """List the runs that are in progress or were interrupted, sorted by their keys."""
        found = []
        async for entry in list_all(self.storage, UNFINISHED_PREFIX):
            try:
                data = await get_all(self.storage, entry.key, MANIFEST_SIZE_MAX)
            except ObjectNotFound:
                continue  # It ended after the listing.
            found.append(UnfinishedRun(entry.key, entry.modified_ms, decode_manifest(entry.key, data)))
        return found

    async def put_unfinished(self, manifest: BackupManifest) -> int:
        """Write the manifest of an unfinished run. Returns the size of the manifest in bytes."""
        data = manifest.encode()
        await self.storage.put(unfinished_key(manifest.backup_id), data)
        return len(data)

    async def remove_unfinished(self, ended: Iterable[UnfinishedRun], own_id: str) -> None:
        """Remove the unfinished manifests that a complete run has replaced: its own, and those of the interrupted runs
        whose pieces it reused. A manifest that was written again meanwhile stays.

        `own_id`: the backup id of the complete run.
        """
        entries = {each.key: each.modified_ms async for each in list_all(self.storage, UNFINISHED_PREFIX)}
        keys = [run.key for run in ended if entries.get(run.key) == run.modified_ms]
        await self.storage.delete([unfinished_key(own_id), *keys])

    # Objects

    def new_content(self) -> MemoryContent | Upload:
        """Create the destination of the bytes of a new piece: a file if the store can write an object before its key is
        known, and memory otherwise.
        """
        return MemoryContent() if self._uploads is None else self._uploads.begin_upload()

    async def put_piece(
        self, partition: PartitionKey, cut: CutPiece[MemoryContent] | CutPiece[MemoryContent | Upload]
    ) -> None:
        """Store a piece of a log under its key. If an upload has written the bytes already, it only gets its key."""
        key = piece_key(partition, cut.piece)
        if isinstance(cut.content, MemoryContent):
            await self.storage.put(key, cut.content)
        else:
            await cut.content.complete(key)

    async def put_metadata(self, snapshot: MetadataSnapshot) -> MetadataPiece:
        """Write a metadata snapshot. Returns its entry for a manifest."""
        data = snapshot.data
        metadata = MetadataPiece(snapshot.end_offset, snapshot.epoch, len(data), crc32c(data, 0))
        await self.storage.put(metadata_key(metadata), data)
        return metadata

    def list_objects(self) -> AsyncIterator[ObjectEntry]:
        """Yield the entries of all pieces and metadata snapshots in the store."""
        return _chain(list_all(self.storage, METADATA_PREFIX), list_all(self.storage, PIECES_PREFIX))

    async def delete_objects(self, keys: Iterable[str]) -> None:
        """Delete the objects with these keys, in calls of at most `DELETED_KEYS_MAX` keys."""
        left = list(keys)
        for start in range(0, len(left), DELETED_KEYS_MAX):
            await self.storage.delete(left[start : start + DELETED_KEYS_MAX])


def object_keys_of(manifest: BackupManifest) -> set[str]:
    """The keys of all objects that a manifest names."""
    keys = {piece_key(key, piece) for key, each in manifest.partitions() for piece in each.pieces if piece.size}
    return keys | {metadata_key(manifest.metadata)}


def _age(backup_id: str) -> tuple[str, int]:
    moment, _, number = backup_id.rpartition("-")
    return moment, int(number) if number.isdecimal() else 0


async def _chain(*listings: AsyncIterator[ObjectEntry]) -> AsyncIterator[ObjectEntry]:
    for listing in listings:
        async for entry in listing:
            yield entry
