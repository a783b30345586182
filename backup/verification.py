"""Verifies a backup: reads and checks every object that it names."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from moldau.backup.manifest import BackupManifest
from moldau.backup.reading import read_metadata, read_piece
from moldau.kraft.snapshot.batches import read_snapshot
from moldau.protocol.primitives import MalformedMessage
from moldau.storage.tiered.port import CorruptObject, ObjectNotFound, RemoteStorage


class VerificationResult(NamedTuple):
    """The result of verifying a backup."""

    object_count: int
    size: int
    problems: list[str]
    """One sentence for each damaged or missing object."""


async def verify_backup(
    storage: RemoteStorage, manifest: BackupManifest, progress: Callable[[int, int], None]
) -> VerificationResult:
    """Read and check the metadata and all pieces of a backup. `progress` is called with the number of bytes that were
    read and the number of bytes of the backup. Raises `RemoteStorageError` if the storage does not answer."""
    problems: list[str] = []
    try:
        read_snapshot(await read_metadata(storage, manifest))
    except (CorruptObject, ObjectNotFound, MalformedMessage) as problem:
        problems.append(f"the metadata of the cluster: {problem}")
    count, size, total = 1, manifest.metadata.size, manifest.size
    for key, partition in manifest.partitions():
        for piece in partition.pieces:
            if not piece.size:
                continue
            try:
                await read_piece(storage, key, piece)
            except (CorruptObject, ObjectNotFound) as problem:
                offsets = f"offsets {piece.first_offset} to {piece.end_offset - 1}"
                problems.append(f"{key}, {offsets}: {problem}")
            count, size = count + 1, size + piece.size
            progress(size, total)
    return VerificationResult(count, size, problems)
