"""Planted bugs of backups and captures: the order of the vector, what is taken over, removed, left out or masked."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Hunt, Mutant

BACKUP_MUTANTS: Final = (
    Mutant(
        710,
        "a backup trusts pieces of another history",
        "backup/taking.py",
        "        if not log.has_epoch_up_to(part.last_epoch, end_offset):\n",
        "        if not log.has_epoch_up_to(part.last_epoch, 0):\n",
        Hunt.BACKUPS,
    ),
    Mutant(
        711,
        "a run that was killed is not taken over",
        "backup/taking.py",
        "            earlier = [each.manifest for each in self._ended] + ([latest] if latest else [])\n",
        "            earlier = [latest] if latest else []\n",
        Hunt.BACKUPS,
    ),
    Mutant(
        712,
        "what an unfinished run has is removed with older backups",
        "backup/retention.py",
        "        named |= object_keys_of(run.manifest)\n",
        "        pass\n",
        Hunt.BACKUPS,
    ),
    Mutant(
        713,
        "a backup goes beyond the end that was asked for",
        "backup/cutting.py",
        "        self._run = BatchRun(0, NO_LEADER_EPOCH, end_offset, INT64_MAX, 0)\n",
        "        self._run = BatchRun(0, NO_LEADER_EPOCH, INT64_MAX, INT64_MAX, 0)\n",
        Hunt.BACKUPS,
    ),
    Mutant(
        714,
        "transactions are asked for before the logs that have their markers",
        "backup/sources/order.py",
        "_ROUNDS: Final = {OFFSETS_TOPIC: 0, SHARE_STATE_TOPIC: 0, TRANSACTIONS_TOPIC: 2}\n",
        "_ROUNDS: Final = {OFFSETS_TOPIC: 0, SHARE_STATE_TOPIC: 0, TRANSACTIONS_TOPIC: 0}\n",
        Hunt.BACKUPS,
    ),
    Mutant(
        715,
        "a log whose files change is read twice at one place",
        "backup/sources/log_files.py",
        "        self._position += taken\n",
        "        self._position += max(taken - 61, 0)\n",
        Hunt.BACKUPS,
    ),
    Mutant(
        720,
        "a capture drops the marker of a transaction that ends after its window",
        "backup/capture/captured_log.py",
        "        return self.end_offset is not None and not self._open\n",
        "        return self.end_offset is not None\n",
        Hunt.BACKUPS,
    ),
    Mutant(
        721,
        "a capture leaves a transaction open that never ended",
        "backup/capture/taking.py",
        "    yield from captured.abort_markers(log.end_offset)\n",
        "    return\n",
        Hunt.BACKUPS,
    ),
    Mutant(
        722,
        "a batch of which all records are captured is not masked",
        "backup/capture/captured_log.py",
        "        if len(kept) == header.records_count and not self._window.masks:\n",
        "        if len(kept) == header.records_count:\n",
        Hunt.BACKUPS,
    ),
    Mutant(
        723,
        "a group stands at what an aborted transaction committed",
        "backup/capture/commits.py",
        "            if marker is not None and control_record_type(marker.key) is ControlRecordType.COMMIT:\n",
        "            if marker is not None:\n",
        Hunt.BACKUPS,
    ),
    Mutant(
        724,
        "users are captured with the topics",
        "backup/capture/metadata.py",
        "        next_producer_id=image.next_producer_id,\n",
        "        next_producer_id=image.next_producer_id,\n        scram=image.scram,\n",
        Hunt.BACKUPS,
    ),
)
