"""Planted bugs of a restore: which transactions stay, what groups and producers have, the metadata of new nodes."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Hunt, Mutant

RESTORE_MUTANTS: Final = (
    Mutant(
        660,
        "the offset of a group stays beyond the end of its partition",
        "backup/group_offsets.py",
        "end_offset if end_offset is None or committed.offset > end_offset else committed.offset",
        "end_offset if end_offset is None else committed.offset",
        Hunt.BACKUPS,
    ),
    Mutant(
        661,
        "the marker of an undone transaction still commits it",
        "backup/restoring.py",
        "            for offset in sorted(changes.aborted_marker_offsets):\n",
        "            for offset in ():\n",
        Hunt.BACKUPS,
    ),
    Mutant(
        662,
        "a transaction stays that has read an undone one",
        "backup/settling.py",
        "                if first is not None and offset > first and reader is not decision:\n",
        "                if first is not None and offset > first and reader is decision:\n",
        Hunt.BACKUPS,
    ),
    Mutant(
        663,
        "what was committed after the first question stays, with the records that the logs happen to have",
        "backup/settling.py",
        "            if decision.offset >= self._states[decision.state_partition].moment_offset:\n",
        "            if decision.offset >= self._states[decision.state_partition].end_offset:\n",
        Hunt.BACKUPS,
    ),
    Mutant(
        664,
        "an open transaction gets no marker",
        "backup/settling.py",
        "            elif span.has_records and span.first_offset < log.end_offset:\n",
        "            elif span.marker is not None and span.first_offset < log.end_offset:\n",
        Hunt.BACKUPS,
    ),
    Mutant(
        665,
        "the next leader epoch is one that batches of the log have",
        "backup/cluster_image.py",
        "        leader_epoch=max(partition.leader_epoch, last_epoch),\n",
        "        leader_epoch=partition.leader_epoch,\n",
        Hunt.BACKUPS,
    ),
    Mutant(
        666,
        "the producer of an aborted transaction is not fenced",
        "backup/settling.py",
        "        return min(epoch + 1, EPOCH_MAX)\n",
        "        return min(epoch, EPOCH_MAX)\n",
        Hunt.BACKUPS,
    ),
    Mutant(
        667,
        "brokers that have not started yet count as brokers that lost records",
        "backup/cluster_image.py",
        "        epoch=UNKNOWN_EPOCH,\n",
        "        epoch=0,\n",
        Hunt.BACKUPS,
    ),
    Mutant(
        779,
        "the start of a share group stays beyond the end of its partition",
        "backup/share_states.py",
        "            if state.start_offset > end_offset or any(",
        "            if any(",
        Hunt.BACKUPS,
    ),
    Mutant(
        698,
        "groups keep their offsets under the former name of a topic",
        "backup/group_offsets.py",
        "                renamed = None if end_offset is None else renames.get(topic)\n",
        "                renamed = None\n",
        Hunt.BACKUPS,
    ),
    Mutant(
        699,
        "a backup of the second in which older ones were removed is taken for an older one",
        "backup/store.py",
        '        return f"{moment}-{max(numbers, default=0) + 1}"\n',
        '        return f"{moment}-{next(each for each in range(1, 1 << 20) if each not in numbers)}"\n',
        Hunt.BACKUPS,
    ),
)
