"""What a follower's machine (`replica_fetcher.py`) asks its shell to do."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from replication.partition import Partition


class TruncateTo(NamedTuple):
    """Cut the log to this offset, its recovery point lowered durably before; answer with `truncated`."""

    partition: Partition
    leader_epoch: int
    offset: int


class StartAt(NamedTuple):
    """Empty the log and let it begin at this offset; answer with `truncated`."""

    partition: Partition
    leader_epoch: int
    offset: int


class Flush(NamedTuple):
    """Make the log durable; answer with `flushed`."""

    partition: Partition
    leader_epoch: int


class LookUp(NamedTuple):
    """Ask the leader where its log begins and ends; answer with `looked_up`."""

    partition: Partition
    leader_epoch: int


class Rebuild(NamedTuple):
    """The leader has the next offset only in remote storage: begin the log anew where its local log begins, with the
    state of the remote part. Answer with `rebuilt`."""

    partition: Partition
    leader_epoch: int
    log_start_offset: int
    """The leader's."""


class Complain(NamedTuple):
    """Log a warning for the operator."""

    message: str


Effect: TypeAlias = TruncateTo | StartAt | Flush | LookUp | Rebuild | Complain
