"""The problems that the audit finds in the listings of log directories and storages, before it reads a batch.

| checked    | how                                                                                                     |
|------------|---------------------------------------------------------------------------------------------------------|
| holes      | each replica, with the tiers, has every offset from the start of its log to its high watermark          |
| orphans    | no index without its segment; no object of a segment without a manifest                                 |
| histories  | the replicas of a partition agree below their high watermarks                                           |
| partitions | the partitions that the metadata of the cluster or the checkpoints name are there                       |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from moldau.spark_jobs.jobs.segment_audit import Problem
from moldau.storage.checkpoints.text_checkpoint import TopicPartition
from moldau.storage.files.local_files import LocalFiles
from moldau.storage.segment.segment_listing import ListedSegment
from moldau.tables.origins.cluster_metadata import ClusterMetadata
from moldau.tables.origins.local_partition import orphan_indexes
from moldau.tables.origins.port import Origin, PartitionOrigin
from moldau.tables.origins.replica_histories import ReplicaFiles, choose_replicas, replica_files
from moldau.tables.planning.partition_view import PartitionView
from moldau.tables.refusals import ClusterMismatch, HistoriesDiffer

WHOLE = 1 << 62


def place_problems(
    origins: Sequence[Origin],
    offers: Mapping[TopicPartition, Sequence[PartitionOrigin]],
    wanted: Sequence[str] | None,
    metadata: ClusterMetadata,
) -> Iterator[Problem]:
    """Yield the problems that the listings of log directories and storages show. Raises OSError and
    `MalformedMessage`.
    """
    found = {key for origin in origins for key in origin.partitions()}
    missing: dict[TopicPartition, str] = {}
    for origin in origins:
        missing |= origin.missing()
    for key in sorted(set(missing) - found):
        if wanted is None or key[0] in wanted:
            path = f"{key[0]}-{key[1]}"
            yield Problem("partitions", path, -1, f"the partition is in none of the places ({missing[key]})")
    for key, listed in sorted(offers.items()):
        may_have_gaps = any(each.may_have_gaps for each in listed)
        for offer in listed:
            yield from _orphans(offer)
        local = [each for each in listed if each.tier == "local"]
        remote = [each for each in listed if each.tier == "remote"]
        try:
            for replica in local:
                yield from _holes(replica, remote)
            if not local and remote:
                yield from _gaps_between(PartitionView(remote), remote[0])
        except ClusterMismatch as differ:
            yield Problem("histories", listed[0].place, -1, str(differ))
        yield from _histories(key, local, metadata, may_have_gaps=may_have_gaps)


def _orphans(offer: PartitionOrigin) -> Iterator[Problem]:
    for each in offer.incomplete:
        message = "objects of a segment without a manifest: it is being copied or deleted, or its manifest is lost"
        yield Problem("orphans", offer.place, each.start_offset, message)
    if offer.tier == "local":
        listed = [ListedSegment(offer.place, each.start_offset, each.size, None) for each in offer.segments]
        for base_offset in orphan_indexes(LocalFiles(), offer.place, listed):
            yield Problem("orphans", offer.place, base_offset, "an index without its segment")


def _holes(replica: PartitionOrigin, remote: Sequence[PartitionOrigin]) -> Iterator[Problem]:
    """Yield a problem for each hole in a replica: offsets from the start of its log to its high watermark that neither
    the replica nor the remote tier has."""
    if not replica.is_checkpointed:
        return
    yield from _gaps_between(PartitionView([replica, *remote]), replica)
    last = replica.segments[-1] if replica.segments else None
    if last is None or last.start_offset >= replica.high_watermark:
        return
    cuts = replica.cuts(last, last.start_offset, replica.high_watermark, WHOLE)
    reached = cuts[-1].last_offset if cuts else None
    after = last.start_offset if reached is None else reached + 1
    if after < replica.high_watermark:
        message = f"the files end at {after}, and the high watermark is {replica.high_watermark}"
        yield Problem("holes", last.name, after, message)


def _gaps_between(view: PartitionView, replica: PartitionOrigin) -> Iterator[Problem]:
    end_offset = replica.high_watermark
    for piece in view.pieces(view.log_start_offset, end_offset):
        if piece.segment is None:
            message = f"offsets {piece.start_offset} to {piece.end_offset} of {view} are in no place"
            yield Problem("holes", replica.place, piece.start_offset, message)


def _histories(
    key: TopicPartition, local: Sequence[PartitionOrigin], metadata: ClusterMetadata, *, may_have_gaps: bool
) -> Iterator[Problem]:
    replicas: list[ReplicaFiles] = [
        replica_files(LocalFiles(), each.place, each.node_id, each.high_watermark, is_only_one=False)
        for each in local
        if each.is_checkpointed
    ]
    topic = metadata.topics().get(key[0])
    try:
        leader = topic.leaders.get(key[1]) if topic is not None else None
        for other, difference in choose_replicas(key, replicas, leader, may_have_gaps=may_have_gaps).others:
            yield Problem("histories", other.directory, other.high_watermark - 1, difference)
    except HistoriesDiffer as differ:
        yield Problem("histories", replicas[0].directory, -1, str(differ))
