"""Pins: objects by which a reader keeps the segments of its plan from deletion until it is done (decision 14).

    reader                                       leader, for each segment that it deletes
    1. list the manifests, choose segments       a. list the pins; if one names the segment, delete it later
    2. write the pin                             b. DELETE_SEGMENT_STARTED, delete the manifest
    3. list the manifests again; if one is       c. list the pins again; if one names the segment, the rest stays
       gone, choose anew, from 1                    until the pin ends
                                                 d. delete the other objects

There are two cases. If the reader has written its pin before the leader lists the pins for the last time, all objects
but the manifest stay. Otherwise the leader has deleted the manifest before the reader lists again, so the reader
chooses anew. This requires that a listing shows all earlier writes, as in S3, GCS, Azure and a directory. A pin ends at
its expiry time, and at the latest `LIFETIME_MAX_MS` after it was written, so that a reader that has crashed delays no
deletion for longer.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from moldau.protocol.primitives import BytesLike
from moldau.storage.checkpoints.partition_metadata import uuid_text
from moldau.storage.tiered.bucket_reading import current_manifests, manifest_keys
from moldau.storage.tiered.layout import PINS_PREFIX, ObjectKind, object_key
from moldau.storage.tiered.manifest import (
    FORMAT_VERSION,
    JsonFields,
    SegmentManifest,
    checked_integer,
    checked_text,
    uuid_of,
    uuids_of,
)
from moldau.storage.tiered.metadata.remote_segment import RemotePartition
from moldau.storage.tiered.port import (
    CorruptObject,
    ObjectNotFound,
    RemoteStorage,
    StorageUnavailable,
    WrongCluster,
    get_all,
    list_all,
)

PIN_SUFFIX: Final = ".json"
PIN_SIZE_MAX: Final = 4 << 20
"""The size (bytes) of the largest pin that is read: about 149,000 segments."""
LIFETIME_MAX_MS: Final = 7 * 86_400_000
ATTEMPT_COUNT_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class Pin:
    """A reader's request to keep some segments until it has read them."""

    cluster_id: str
    partition: RemotePartition
    segment_ids: tuple[bytes, ...]
    written_ms: int
    """The time (ms) at which the pin was written, by the reader's wall clock."""
    expires_ms: int
    reason: str = ""
    """A description of the reader's job, for operators."""

    def encode(self) -> bytes:
        fields = {
            "format_version": FORMAT_VERSION,
            "cluster_id": self.cluster_id,
            "topic": self.partition.topic,
            "topic_id": uuid_text(self.partition.topic_id),
            "partition": self.partition.partition,
            "segments": [uuid_text(each) for each in self.segment_ids],
            "written_ms": self.written_ms,
            "expires_ms": self.expires_ms,
            "reason": self.reason,
        }
        return json.dumps(fields, indent=1).encode() + b"\n"

    def is_in_force(self, now_ms: int) -> bool:
        """Whether the pin is in force at `now_ms`."""
        return now_ms < min(self.expires_ms, self.written_ms + LIFETIME_MAX_MS)


def decode_pin(key: str, data: BytesLike) -> Pin:
    """Decode a pin; `key` names the object in error messages. Raises `CorruptObject`."""
    fields = JsonFields(key, data)
    return Pin(
        cluster_id=fields.get("cluster_id", checked_text),
        partition=RemotePartition(
            fields.get("topic", checked_text), fields.get("topic_id", uuid_of), fields.get("partition", checked_integer)
        ),
        segment_ids=fields.get("segments", uuids_of),
        written_ms=fields.get("written_ms", checked_integer),
        expires_ms=fields.get("expires_ms", checked_integer),
        reason=fields.get("reason", checked_text),
    )


def pin_prefix(partition: RemotePartition) -> str:
    """The prefix of the keys of all pins of a partition."""
    return f"{PINS_PREFIX}{partition.topic}.{uuid_text(partition.topic_id)}/{partition.partition}/"


def pin_key(partition: RemotePartition, name: str) -> str:
    """The key of a pin. `name` has letters, digits, `_` and `-`, and is unique to the reader."""
    assert name.replace("_", "").replace("-", "").isalnum() and name.isascii(), name
    return f"{pin_prefix(partition)}{name}{PIN_SUFFIX}"


async def read_pin(storage: RemoteStorage, key: str) -> Pin:
    """Read a pin. Raises `RemoteStorageError`: `ObjectNotFound`, `CorruptObject` and others."""
    return decode_pin(key, await get_all(storage, key, PIN_SIZE_MAX))


async def pinned_segments(
    storage: RemoteStorage, cluster_id: str, partition: RemotePartition, now_ms: int
) -> tuple[set[bytes], list[str]]:
    """Return the ids of the segments that pins of a partition hold now, and a sentence on each pin that cannot be read.
    Such a pin holds nothing. Raises `RemoteStorageError` if the storage does not answer; then nothing may be deleted.
    """
    held: set[bytes] = set()
    problems: list[str] = []
    async for entry in list_all(storage, pin_prefix(partition)):
        try:
            pin = await read_pin(storage, entry.key)
            if (pin.cluster_id, pin.partition) != (cluster_id, partition):
                raise WrongCluster(f"{entry.key} is a pin of another partition or cluster")
        except ObjectNotFound:
            continue  # The pin was removed after the listing.
        except (CorruptObject, WrongCluster) as bad:
            problems.append(str(bad))
        else:
            held.update(pin.segment_ids if pin.is_in_force(now_ms) else ())
    return held, problems


async def pin_current_segments(
    storage: RemoteStorage,
    cluster_id: str,
    partition: RemotePartition,
    name: str,
    *,
    now_ms: int,
    lifetime_ms: int,
    reason: str = "",
) -> Sequence[SegmentManifest]:
    """Pin the current segments of a partition, and return their manifests. All objects of these segments except the
    manifests stay until `remove_pin`, or until `lifetime_ms` is over. Raises ValueError if there are so many segments
    that a leader would not read the pin, and `RemoteStorageError`; a written pin then stays until it expires."""
    for _ in range(ATTEMPT_COUNT_MAX):
        chosen = await current_manifests(storage, cluster_id, partition)
        ids = tuple(each.segment_id for each in chosen)
        pin = Pin(cluster_id, partition, ids, now_ms, now_ms + lifetime_ms, reason)
        encoded = pin.encode()
        if len(encoded) > PIN_SIZE_MAX:
            raise ValueError(f"a pin of {len(chosen)} segments has {len(encoded)} bytes, more than {PIN_SIZE_MAX}")
        await storage.put(pin_key(partition, name), encoded)
        there: Collection[str] = {key async for key in manifest_keys(storage, partition)}
        wanted = [object_key(partition, each.start_offset, each.segment_id, ObjectKind.MANIFEST) for each in chosen]
        if all(key in there for key in wanted):
            return chosen
    raise StorageUnavailable(
        f"{pin_key(partition, name)}: segments were deleted at each of {ATTEMPT_COUNT_MAX} attempts"
    )


async def remove_pin(storage: RemoteStorage, partition: RemotePartition, name: str) -> None:
    """Remove the pin of a reader that is done. It is not an error if the pin does not exist. Raises
    `RemoteStorageError`."""
    await storage.delete([pin_key(partition, name)])
