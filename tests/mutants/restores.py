"""Planted bugs of a restore: which transactions stay, what groups and producers have, the metadata of new nodes."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Hunt, Mutant

RESTORE_MUTANTS: Final = (
    Mutant(
        660,
        "the offset of a group stays beyond the end of its partition",
        "backup/group_offsets.py",
        "                if end_offset is None or committed.offset > end_offset:\n",
        "                if end_offset is None:\n",
        Hunt.STORIES,
    ),
    Mutant(
        661,
        "the marker of an undone transaction still commits it",
        "backup/restoring.py",
        "            for offset in sorted(changes.aborted_marker_offsets):\n",
        "            for offset in ():\n",
        Hunt.STORIES,
    ),
    Mutant(
        662,
        "a transaction stays that has read an undone one",
        "backup/settling.py",
        "                if first is not None and offset > first and reader is not decision:\n",
        "                if first is not None and offset > first and reader is decision:\n",
        Hunt.STORIES,
    ),
    Mutant(
        663,
        "what was committed after the first question stays, with the records that the logs happen to have",
        "backup/settling.py",
        "            if decision.offset >= self._states[decision.state_partition].moment_offset:\n",
        "            if decision.offset >= self._states[decision.state_partition].end_offset:\n",
        Hunt.STORIES,
    ),
    Mutant(
        664,
        "an open transaction gets no marker",
        "backup/settling.py",
        "            elif span.has_records and span.first_offset < log.end_offset:\n",
        "            elif span.marker is not None and span.first_offset < log.end_offset:\n",
        Hunt.STORIES,
    ),
    Mutant(
        665,
        "the next leader epoch is one that batches of the log have",
        "backup/cluster_image.py",
        "        leader_epoch=max(partition.leader_epoch, last_epoch),\n",
        "        leader_epoch=partition.leader_epoch,\n",
        Hunt.STORIES,
    ),
    Mutant(
        666,
        "the producer of an aborted transaction is not fenced",
        "backup/settling.py",
        "        return min(epoch + 1, EPOCH_MAX)\n",
        "        return min(epoch, EPOCH_MAX)\n",
        Hunt.STORIES,
    ),
    Mutant(
        667,
        "brokers that have not started yet count as brokers that lost records",
        "backup/cluster_image.py",
        "        epoch=UNKNOWN_EPOCH,\n",
        "        epoch=0,\n",
        Hunt.STORIES,
    ),
)
