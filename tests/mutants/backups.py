"""Planted bugs of backups: the order of the vector, what is taken over, what is removed."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Hunt, Mutant

BACKUP_MUTANTS: Final = (
    Mutant(
        710,
        "a backup trusts pieces of another history",
        "backup/taking.py",
        "        if not log.has(part.last_epoch, end_offset):\n",
        "        if not log.has(part.last_epoch, 0):\n",
        Hunt.STORIES,
    ),
    Mutant(
        711,
        "a run that was killed is not taken over",
        "backup/taking.py",
        "            earlier = [each.manifest for each in self._ended] + ([latest] if latest else [])\n",
        "            earlier = [latest] if latest else []\n",
        Hunt.STORIES,
    ),
    Mutant(
        712,
        "what an unfinished run has is removed with older backups",
        "backup/retention.py",
        "        named |= keys_of(run.manifest)\n",
        "        pass\n",
        Hunt.STORIES,
    ),
    Mutant(
        713,
        "a backup goes beyond the end that was asked for",
        "backup/cutting.py",
        "        self._run = BatchRun(0, NO_LEADER_EPOCH, end_offset, INT64_MAX, 0)\n",
        "        self._run = BatchRun(0, NO_LEADER_EPOCH, INT64_MAX, INT64_MAX, 0)\n",
        Hunt.STORIES,
    ),
    Mutant(
        714,
        "transactions are asked for before the logs that have their markers",
        "backup/sources/order.py",
        "_ROUNDS: Final = {OFFSETS: 0, SHARE_STATE: 0, TRANSACTIONS: 2}\n",
        "_ROUNDS: Final = {OFFSETS: 0, SHARE_STATE: 0, TRANSACTIONS: 0}\n",
        Hunt.STORIES,
    ),
    Mutant(
        715,
        "a log whose files change is read twice at one place",
        "backup/sources/log_files.py",
        "        self._position += taken\n",
        "        self._position += max(taken - 61, 0)\n",
        Hunt.STORIES,
    ),
)
