"""Every segment that the metadata calls finished has all its objects, with the sizes and checksums of its manifest,
and in them exactly what was committed, or of a compacted topic what cleaning left of it (`copy_contents.py`)."""

from __future__ import annotations

from moldau.protocol.primitives import crc32c
from moldau.storage.tiered.layout import ObjectKind, object_key
from moldau.storage.tiered.manifest import decode_manifest
from moldau.storage.tiered.metadata.records import metadata_partition
from moldau.storage.tiered.metadata.remote_segment import RemotePartition
from moldau.storage.tiered.port import RemoteStorageError
from moldau.testing.simulation.storage import SimulatedBucket
from tests.simulation.invariants.observation import Observation, Violation
from tests.simulation.tiering.copy_contents import check_cleaned, check_contents
from tests.simulation.tiering.local_starts import reader_of
from tests.simulation.tiering.remote_metadata import FINISHED, Known, RemoteMetadata
from tests.support.cluster import CLUSTER_ID


class WholeCopies:
    def __init__(self, bucket: SimulatedBucket) -> None:
        self._bucket = bucket
        self._verified: dict[bytes, dict[str, bytes]] = {}
        """By segment id: its objects as they were when they were verified."""
        self._looked: tuple[int, int] = (0, 0)
        """Changes of the bucket, and records of the metadata, when all that was known was verified."""

    def check(self, seen: Observation, metadata: RemoteMetadata) -> None:
        looked = (self._bucket.change_count, sum(metadata.end_offsets.values()))
        if looked == self._looked:
            return
        is_all = True
        counts = {reader.partition_count for node in seen.nodes if (reader := reader_of(node.broker)) is not None}
        count = max((each or 0 for each in counts), default=0)
        for partition, segments in metadata.segments.items():
            if not count or not metadata.is_current(seen, metadata_partition(partition, count)):
                is_all = False
                continue
            for known in segments.values():
                if known.state is FINISHED:
                    is_all &= self._check(seen, metadata, partition, known)
        if is_all:
            self._looked = looked

    def _check(self, seen: Observation, metadata: RemoteMetadata, partition: RemotePartition, known: Known) -> bool:
        """Whether the segment could be verified."""
        segment, objects = known.segment, self._bucket.objects
        verified = self._verified.get(segment.segment_id)
        if verified is not None:
            for key, data in verified.items():
                stored = objects.get(key)
                if stored is None or stored.data is not data:
                    raise Violation(f"{key} is {'gone' if stored is None else 'another'}, and its segment is read")
            return True
        key = object_key(partition, segment.start_offset, segment.segment_id, ObjectKind.MANIFEST)
        if key not in objects:
            raise Violation(f"{key} is not there, and its copy is finished")
        try:
            manifest = decode_manifest(key, objects[key].data)
            manifest.check(CLUSTER_ID, partition, segment, key)
        except RemoteStorageError as error:
            raise Violation(f"{key}: {error}") from error
        contents: dict[ObjectKind, bytes] = {}
        found = {key: objects[key].data}
        for kind, summary in manifest.objects.items():
            its_key = object_key(partition, segment.start_offset, segment.segment_id, kind)
            stored = objects.get(its_key)
            if stored is None or len(stored.data) != summary.size or crc32c(stored.data, 0) != summary.crc32c:
                raise Violation(f"{its_key} is not what its manifest says")
            contents[kind] = found[its_key] = stored.data
        topic = (partition.topic_id, partition.partition)
        committed = seen.committed.get(topic)
        if committed is None or committed.end_offset <= segment.last_offset or committed.unseen:
            if committed is not None and not committed.unseen and metadata.leaders.is_current(seen, topic):
                raise Violation(f"{key}: the copy reaches {segment.last_offset}, committed is {committed.end_offset}")
            return False
        if segment.custom_metadata is None:
            check_contents(contents, segment, committed.batches, key, deleted_end=committed.deleted_end)
        else:
            check_cleaned(contents[ObjectKind.LOG], segment, key)
        self._verified[segment.segment_id] = found
        return True
