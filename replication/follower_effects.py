"""The effects of the follower's state machine (`replica_fetcher.py`), which its shell carries out."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from moldau.replication.partition import Partition


class TruncateTo(NamedTuple):
    """Make a lowered recovery point durable, then truncate the log to this offset; report `truncated`."""

    partition: Partition
    leader_epoch: int
    offset: int


class StartAt(NamedTuple):
    """Empty the log and let it begin at this offset; report `truncated`."""

    partition: Partition
    leader_epoch: int
    offset: int


class Flush(NamedTuple):
    """Make the log durable; report `flushed`."""

    partition: Partition
    leader_epoch: int


class LookUp(NamedTuple):
    """Ask the leader for its log start and log end offsets; report `looked_up`."""

    partition: Partition
    leader_epoch: int


class Rebuild(NamedTuple):
    """The leader has the next offset only in remote storage.

    Begin the log anew where the leader's local log begins, with the state of the remote part. Report `rebuilt`.
    """

    partition: Partition
    leader_epoch: int
    log_start_offset: int
    """The leader's log start offset."""


class Complain(NamedTuple):
    """Log a warning for the operator."""

    message: str


Effect: TypeAlias = TruncateTo | StartAt | Flush | LookUp | Rebuild | Complain
