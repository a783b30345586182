"""A broker knows each remote segment of a partition whose record it says that it has read."""

from __future__ import annotations

from tests.simulation.invariants.observation import Observation, Violation
from tests.simulation.tiering.remote_metadata import DELETED, RemoteMetadata


class FollowedMetadata:
    def check(self, seen: Observation, metadata: RemoteMetadata) -> None:
        for node in seen.nodes:
            for followed in node.broker.tiering.reader if node.broker.tiering is not None else ():
                if followed.is_being_removed or not followed.is_complete:
                    continue
                if followed.next_offset > metadata.end_offsets.get(followed.metadata_index, 0):
                    continue  # It may have read of a deletion that is not in the model yet.
                known = {each.segment_id for each in followed.remote_log.segments()}
                for each in metadata.of(followed.key):
                    is_read = each.offset < followed.next_offset and each.state is not DELETED
                    if is_read and each.segment.segment_id not in known:
                        raise Violation(
                            f"node {node.id} has read the metadata up to {followed.next_offset}, and lacks {each} of"
                            f" {followed.key}"
                        )
