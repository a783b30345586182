"""Two leaders never both count for one range: of two segments that are read, neither lies wholly inside the other, in
the same leader epochs. And every broker that has read the metadata has the segments and states of the model."""

from __future__ import annotations

from itertools import pairwise

from moldau.broker.tiering.remote_partitions import FollowedRemoteLog
from moldau.storage.tiered.metadata.remote_segment import RemoteSegment, SegmentState
from tests.simulation.invariants.observation import Observation, Violation
from tests.simulation.tiering.local_starts import reader_of
from tests.simulation.tiering.remote_metadata import DELETED, FINISHED, RemoteMetadata


class CountedOnce:
    def __init__(self) -> None:
        self._looked: dict[tuple[int, int, object], int] = {}

    def check(self, seen: Observation, metadata: RemoteMetadata) -> None:
        for node in seen.nodes:
            for followed in reader_of(node.broker) or ():
                place = (node.id, node.life, followed.key)
                end_offset = followed.next_offset
                if not followed.is_complete or end_offset != metadata.end_offsets.get(followed.metadata_index):
                    continue
                if self._looked.get(place) != end_offset:
                    self._looked[place] = end_offset
                    self._compare(node.id, followed, metadata)

    @staticmethod
    def _compare(node_id: int, followed: FollowedRemoteLog, metadata: RemoteMetadata) -> None:
        its_log, key = followed.remote_log, followed.key
        told = f"the remote log of {key.topic}-{key.partition} on node {node_id}"
        known: dict[bytes, SegmentState] = {
            segment_id: each.state
            for segment_id, each in metadata.segments.get(key, {}).items()
            if each.state is not DELETED
        }
        held = {each.segment_id: each.state for each in its_log.segments()}
        if held != known:
            different = {each.hex()[:8]: (held.get(each), known.get(each)) for each in {*held} | {*known}}
            unequal = {name: states for name, states in different.items() if states[0] != states[1]}
            raise Violation(f"{told} differs from the committed records: {unequal}")
        read = its_log.read_segments()
        unread = [each for each, _ in its_log.superseded_copies()]
        counted = {each.segment_id for each in (*read, *unread)}
        for segment_id, state in known.items():
            if (state is FINISHED) != (segment_id in counted):
                raise Violation(
                    f"{told}: segment {segment_id.hex()[:8]} is {state.name}, counted: {segment_id in counted}"
                )
        for one, other in pairwise(read):
            if is_inside(one, other) or is_inside(other, one):
                raise Violation(f"{told} counts {one} and {other}")


def is_inside(one: RemoteSegment, other: RemoteSegment) -> bool:
    """Whether all that one segment has is in the other, in the same epochs."""
    ranges = {epoch: (start, other.last_offset_in(slot)) for slot, (epoch, start) in enumerate(other.epochs)}
    return all(
        epoch in ranges and ranges[epoch][0] <= start and one.last_offset_in(slot) <= ranges[epoch][1]
        for slot, (epoch, start) in enumerate(one.epochs)
    )
