"""The test whether a remote segment belongs to the history of the current leader. Retention counts only such segments.

After an unclean election, remote storage may hold segments of a history that the log does not have any more. Retention
does not count them against `retention.bytes`: otherwise it would delete data of the current history instead. It
deletes them separately.
"""

from __future__ import annotations

from collections.abc import Sequence

from storage.checkpoints.leader_epochs import EpochStart
from storage.tiered.metadata.remote_segment import RemoteSegment


def is_in_history(
    segment: RemoteSegment, log_end_offset: int, epochs: Sequence[EpochStart], *, is_compacted: bool = False
) -> bool:
    """Whether the leader, with these leader epochs and this end of the log (exclusive), has all records of the segment,
    at the same offsets in the same epochs. Epochs before the leader's first are not compared: the log start has
    passed them. The rule is Apache Kafka's (a test compares).

    With `is_compacted` an epoch of the leader may begin later than in the segment: a replica that fetched a cleaned log
    has not seen the records with which the epoch began.
    """
    if not epochs or segment.last_offset >= log_end_offset or segment.epochs[-1].epoch < epochs[0].epoch:
        return False
    slots = {epoch: slot for slot, (epoch, _) in enumerate(epochs)}
    for slot, (epoch, start_offset) in enumerate(segment.epochs):
        if epoch < epochs[0].epoch:
            continue
        known = slots.get(epoch)
        if known is None:
            return False
        end_offset = epochs[known + 1].start_offset if known + 1 < len(epochs) else log_end_offset
        # The leader's first epoch begins at the log start offset, which may be inside the segment.
        begins_late = known > 0 and epochs[known].start_offset > start_offset
        if (begins_late and not is_compacted) or segment.last_offset_in(slot) >= end_offset:
            return False
    return True
