"""Tests whether a remote segment belongs to the history of the current leader.

After an unclean election, remote storage may have segments of a history that the log does not have any more. Retention
deletes them separately and does not count them against `retention.bytes`, because otherwise it would delete data of the
current history for them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from operator import itemgetter

from moldau.storage.checkpoints.leader_epochs import EpochStart
from moldau.storage.tiered.metadata.remote_segment import RemoteSegment


def is_in_history(
    segment: RemoteSegment, log_end_offset: int, epochs: Sequence[EpochStart], *, is_compacted: bool = False
) -> bool:
    """Whether a leader with these leader epochs and this log end offset (exclusive) has all records of the segment, at
    the same offsets in the same epochs. Epochs before the leader's first are not compared, because they are before its
    log start. The rule is Apache Kafka's (a test compares).

    With `is_compacted` an epoch of the leader may begin later than in the segment, or be unknown to the leader: a
    replica that fetched a cleaned log has not seen the records that cleaning had removed before.
    """
    if not epochs or segment.last_offset >= log_end_offset or segment.epochs[-1].epoch < epochs[0].epoch:
        return False
    for slot, (epoch, start_offset) in enumerate(segment.epochs):
        if epoch < epochs[0].epoch:
            continue
        after = bisect_right(epochs, epoch, key=itemgetter(0))
        known = epochs[after - 1] if epochs[after - 1].epoch == epoch else None
        end_offset = epochs[after].start_offset if after < len(epochs) else log_end_offset
        # The leader's first epoch begins at the log start offset, which may be inside the segment.
        begins_late = known is not None and after > 1 and known.start_offset > start_offset
        is_unknown = known is None and not (is_compacted and after < len(epochs))
        if is_unknown or (begins_late and not is_compacted) or segment.last_offset_in(slot) >= end_offset:
            return False
    return True


def with_remote_epochs(epochs: Sequence[EpochStart], remote_epochs: Iterable[EpochStart]) -> list[EpochStart]:
    """Return the leader epochs of a compacted log, completed by the epochs of its remote segments
    (`RemoteLog.epoch_starts`).

    The log may have too late a start offset for an epoch, or may not know the epoch (see `is_in_history`). The segments
    then have the right start offset.
    """
    if not epochs:
        return []
    starts = dict(epochs)
    first_epoch, last_epoch = epochs[0].epoch, epochs[-1].epoch
    for epoch, start_offset in remote_epochs:
        if first_epoch < epoch <= last_epoch:
            starts[epoch] = min(start_offset, starts.get(epoch, start_offset))
    completed: list[EpochStart] = []
    for epoch in sorted(starts):
        while completed and completed[-1].start_offset >= starts[epoch]:
            completed.pop()  # Of another history, or without a record.
        completed.append(EpochStart(epoch, starts[epoch]))
    return completed


def epoch_at(epochs: Sequence[EpochStart], offset: int) -> int | None:
    """The leader epoch of an offset; None before the first epoch."""
    slot = bisect_right(epochs, offset, key=itemgetter(1))
    return epochs[slot - 1].epoch if slot else None
