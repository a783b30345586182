"""The leader epoch of the offset before a leader's local log: that of the remote segment that ends there.

A follower below the leader's local log start begins where the leader's files do. Its leader epochs and producer states
come from the remote segment that holds the offset before; and an offset is read from remote storage by leader epoch.
"""

from __future__ import annotations

from moldau.storage.checkpoints.leader_epochs import EpochEnd, EpochStart


def epoch_to_ask_for(local_start: EpochStart) -> int | None:
    """The epoch whose end the follower requests from the leader (OffsetForLeaderEpoch); None where no request is
    needed.

    `local_start`: the leader's local log start offset and the epoch of the record there.
    """
    return local_start.epoch - 1 if local_start.epoch > 0 else None


def epoch_before(local_start: EpochStart, earlier: EpochEnd | None) -> int:
    """The leader epoch of the offset before the leader's local log.

    `earlier` is the leader's response: its largest epoch below that of its local log start, and the end of that epoch
    (exclusive).
    """
    if earlier is not None and earlier.end_offset > local_start.start_offset - 1:
        return earlier.epoch
    return local_start.epoch
