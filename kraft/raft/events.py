"""What happens to the Raft machine, and what it wants done.

Persist, then act: whatever may only happen once something is durable is no effect of the step that asked for the
durability. It is an effect of the step that hears of it, so the wrong order cannot be written down:

    SaveElection  ⟶  ElectionSaved   before the vote counts
    Append        ⟶  Appended        before the end of the log is known
    (a sync)      ⟶  Flushed         before the copy counts for the high watermark
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from kraft.raft.election import Election
from protocol.record_builder import Record

# Events


class Started(NamedTuple):
    """The log and quorum-state have been read."""


class ElectionSaved(NamedTuple):
    """quorum-state is durable as it was asked for."""

    election: Election


class Appended(NamedTuple):
    """The log has grown to this end offset."""

    end_offset: int


class Flushed(NamedTuple):
    """The log is durable up to this offset, exclusive."""

    end_offset: int


Event: TypeAlias = Started | ElectionSaved | Appended | Flushed

# Effects


class SaveElection(NamedTuple):
    """Make it durable in quorum-state; answer with `ElectionSaved`."""

    election: Election


class Append(NamedTuple):
    """Append one batch of control records in this leader epoch, and have it synced."""

    epoch: int
    records: Sequence[Record]


class Lead(NamedTuple):
    """This node leads from here on: build the controller. Comes after the batch that begins the term."""

    epoch: int


class Commit(NamedTuple):
    """Everything before this offset will stay for ever."""

    high_watermark: int


Effect: TypeAlias = SaveElection | Append | Lead | Commit
