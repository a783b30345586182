"""The keys of the objects in a backup store. docs/backup.md describes them.

moldau-backup.json                                                  the id of the cluster
pieces/<topic id>/<partition>/<first offset>-<end offset>-<crc32c>  whole batches, as in the log
metadata/<end offset>-<epoch>-<crc32c>                              a KRaft snapshot
backups/<backup id>.json                                            a manifest, written last
unfinished/<backup id>.json                                         a manifest of what a run has written so far
"""

from __future__ import annotations

from typing import Final

from moldau.backup.manifest import MetadataPiece, PartitionKey, Piece
from moldau.storage.checkpoints.partition_metadata import uuid_text
from moldau.storage.files.log_paths import offset_name

STORE_MANIFEST_KEY: Final = "moldau-backup.json"
PIECES_PREFIX: Final = "pieces/"
METADATA_PREFIX: Final = "metadata/"
BACKUPS_PREFIX: Final = "backups/"
UNFINISHED_PREFIX: Final = "unfinished/"
_SUFFIX: Final = ".json"


def piece_key(partition: PartitionKey, piece: Piece) -> str:
    """The key of a piece of a log. Pieces with equal keys have equal bytes."""
    first, end = offset_name(piece.first_offset, ""), offset_name(piece.end_offset, "")
    return f"{PIECES_PREFIX}{uuid_text(partition.topic_id)}/{partition.partition}/{first}-{end}-{piece.crc32c:08x}"


def metadata_key(metadata: MetadataPiece) -> str:
    """The key of the metadata snapshot of a backup."""
    return f"{METADATA_PREFIX}{offset_name(metadata.end_offset, '')}-{metadata.epoch}-{metadata.crc32c:08x}"


def backup_key(backup_id: str) -> str:
    """The key of the manifest of a backup."""
    return f"{BACKUPS_PREFIX}{backup_id}{_SUFFIX}"


def unfinished_key(backup_id: str) -> str:
    """The key of the manifest of an incomplete backup, whose run is in progress or was interrupted."""
    return f"{UNFINISHED_PREFIX}{backup_id}{_SUFFIX}"


def backup_id_of(key: str) -> str:
    """The id of a backup, from the key of its manifest."""
    return key.rpartition("/")[2].removesuffix(_SUFFIX)
