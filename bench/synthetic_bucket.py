"""A synthetic remote storage: it generates any number of segments when it is asked, without memory for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from moldau.protocol.primitives import BytesLike
from moldau.storage.checkpoints.leader_epochs import EpochStart
from moldau.storage.tiered.layout import (
    CLUSTER_MANIFEST_KEY,
    REQUIRED_KINDS,
    ObjectKind,
    object_key,
    parse_key,
    partition_prefix,
)
from moldau.storage.tiered.manifest import ObjectSummary, SegmentManifest, encode_cluster_manifest
from moldau.storage.tiered.metadata.remote_segment import RemotePartition
from moldau.storage.tiered.port import Content, ObjectEntry, ObjectNotFound, directories_of

CLUSTER: Final = "4L6g3nShT-eMCtK--X86sw"
TOPIC_ID: Final = bytes(range(16))
SUFFIXES: Final = sorted(kind.value for kind in ObjectKind if kind is not ObjectKind.TRANSACTION_INDEX)


class SyntheticBucket:
    """A `RemoteStorage` that can only be read. Manifests are made from one template, so that they cost little."""

    def __init__(self, topic: str, partitions: int, segments: int, offsets: int, size: int) -> None:
        self._partitions = [RemotePartition(topic, TOPIC_ID, number) for number in range(partitions)]
        self._prefixes = {partition_prefix(each): each for each in self._partitions}
        self._segments, self._offsets, self._size = segments, offsets, size
        self._templates = {prefix: self._template(each) for prefix, each in self._prefixes.items()}

    async def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> Sequence[ObjectEntry]:
        found: list[ObjectEntry] = []
        for partition_start in sorted(self._prefixes):
            if not partition_start.startswith(prefix) and partition_start != prefix:
                continue
            if after.startswith(partition_start) and not after[len(partition_start)].isdigit():
                continue
            if after > partition_start and not after.startswith(partition_start):
                continue
            first = int(after[len(partition_start) :][:20]) // self._offsets if after.startswith(partition_start) else 0
            for number in range(first, self._segments):
                found += [each for each in self._objects(partition_start, number) if each.key > after]
                if len(found) >= limit:
                    return found[:limit]
        return found

    async def list_directories(self, prefix: str) -> Sequence[str]:
        return directories_of(self._prefixes, prefix)

    async def get(self, key: str, position: int, size: int) -> BytesLike:
        if key == CLUSTER_MANIFEST_KEY:
            return encode_cluster_manifest(CLUSTER)
        prefix, _, name = key.rpartition("/")
        if not name.endswith(ObjectKind.MANIFEST.value):
            raise ObjectNotFound(key)
        start = int(name[:20])
        before, between, after = self._templates[prefix + "/"]
        made = b"%b%b%b%d%b%d%b" % (
            before,
            name[21:43].encode(),
            between[0],
            start,
            between[1],
            start + self._offsets - 1,
            after,
        )
        return made

    async def get_parts(self, key: str, position: int, size: int) -> Sequence[BytesLike]:
        return [await self.get(key, position, size)]

    async def size(self, key: str) -> int:
        raise ObjectNotFound(key)

    async def put(self, key: str, content: Content, *, must_create: bool = False) -> None:
        raise AssertionError("a plan writes nothing")

    async def delete(self, keys: Sequence[str]) -> None:
        raise AssertionError("a plan deletes nothing")

    async def close(self) -> None:
        """Do nothing: there is no resource to release."""

    def _objects(self, prefix: str, number: int) -> Sequence[ObjectEntry]:
        stem = f"{prefix}{number * self._offsets:020}-{number:020}Ag"
        return [ObjectEntry(stem + suffix, 1000) for suffix in SUFFIXES]

    def _template(self, partition: RemotePartition) -> tuple[bytes, tuple[bytes, bytes], bytes]:
        """A manifest, split around its segment id, its start offset and its last offset."""
        objects = {kind: ObjectSummary(self._size, 1) for kind in REQUIRED_KINDS}
        segment_id = bytes([255] * 16)
        manifest = SegmentManifest(
            CLUSTER,
            partition,
            segment_id,
            7_000_007,
            8_000_008,
            (EpochStart(0, 7_000_007),),
            1_700_000_000_000,
            objects,
        )
        named = parse_key(object_key(partition, 0, segment_id, ObjectKind.LOG))
        assert named is not None
        text = manifest.encode().replace(b'"start_offset": 7000007\n', b'"start_offset": 0\n')
        identity = object_key(partition, 0, segment_id, ObjectKind.LOG).rpartition("/")[2][21:43].encode()
        before, rest = text.split(identity)
        first, rest = rest.split(b"7000007", 1)
        second, rest = rest.split(b"8000008", 1)
        return before, (first, second), rest
