"""Planted in the groups' side of transactions: offsets that are pending until a marker."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Hunt, Mutant

READING: Final = "coordinator/shard/record_reading.py"
GROUP: Final = "coordinator/offsets/offset_store.py"
STORE: Final = "coordinator/offsets/offset_store.py"
COMMIT: Final = "coordinator/offsets/offset_commit.py"

GROUP_TRANSACTION_MUTANTS: Final = (
    Mutant(
        150,
        "offsets pending in a transaction are lost at a coordinator's failover",
        READING,
        "            self._changes.append(OffsetsLoaded(self._offsets, self._producer_id))\n",
        "            if self._producer_id == NO_PRODUCER_ID:\n"
        "                self._changes.append(OffsetsLoaded(self._offsets, self._producer_id))\n",
        Hunt.GROUPS,
    ),
    Mutant(
        151,
        "offsets of an aborted transaction are visible",
        GROUP,
        "        if is_commit and value is not None:\n",
        "        if value is not None:\n",
        Hunt.GROUPS,
    ),
    Mutant(
        152,
        "a coordinator that loads takes every transaction for committed",
        READING,
        "TransactionEnded(producer_id, is_commit)",
        "TransactionEnded(producer_id, True)",
        Hunt.GROUPS,
    ),
    Mutant(
        153,
        "offsets of a transaction are visible before its end",
        GROUP,
        "        elif change.producer_id == NO_PRODUCER_ID:\n",
        "        elif change.producer_id:\n",
        Hunt.GROUPS,
    ),
    Mutant(
        154,
        "a transaction that ends later overrules a plain commit after its own",
        GROUP,
        "            if self.pending:\n                self._overrule(key)\n",
        "",
        Hunt.GROUPS,
    ),
    Mutant(
        155,
        "of two transactions the one that ends last counts, not the last record",
        GROUP,
        "                values[earlier] = None\n",
        "                pass\n",
        Hunt.GROUPS,
    ),
    Mutant(
        156,
        "a deleted offset comes back with the commit of a transaction",
        GROUP,
        "            self.pending.pop(key, None)\n",
        "",
        Hunt.GROUPS,
    ),
    Mutant(
        157,
        "the deletion of a group leaves its pending offsets",
        GROUP,
        "        return list({**dict.fromkeys(self.offsets), **dict.fromkeys(self.pending)})\n",
        "        return list(self.offsets)\n",
        Hunt.GROUPS,
    ),
    Mutant(
        158,
        "a read of stable offsets does not see that one is pending",
        "coordinator/offsets/offset_fetch.py",
        "group.pending if require_stable else {}",
        "{}",
        Hunt.GROUPS,
    ),
    Mutant(
        159,
        "a group expires while a transaction has offsets for it",
        "coordinator/offsets/offset_delete.py",
        " and not latest.pending",
        "",
        Hunt.GROUPS,
    ),
    Mutant(
        160,
        "an offset expires while a transaction has another for its partition",
        "coordinator/offsets/offset_delete.py",
        "begins_ms is None or is_pending or",
        "begins_ms is None or",
        Hunt.GROUPS,
    ),
    Mutant(
        161,
        "a marker is acknowledged before it is committed",
        COMMIT,
        "    step.when_committed(MarkerWritten(event.waiter))\n",
        "    step.reply(event.waiter, ErrorCode.NONE)\n",
        Hunt.GROUPS,
    ),
    Mutant(
        162,
        "a marker that the log refused is acknowledged",
        COMMIT,
        "        step.reply(self.waiter, MARKER_ERRORS.get(error, error))\n",
        "        step.reply(self.waiter, ErrorCode.NONE)\n",
        Hunt.GROUPS,
    ),
    Mutant(
        163,
        "a transaction commits offsets for a member of a former generation",
        "coordinator/classic/commit.py",
        "    return ErrorCode.NONE if generation == group.generation else ErrorCode.ILLEGAL_GENERATION\n",
        "    return ErrorCode.NONE\n",
        Hunt.GROUPS,
    ),
    Mutant(
        164,
        "the end of a transaction is visible before its marker is committed",
        STORE,
        "        self._uncommitted.add(change, end_offset)\n",
        "        self._uncommitted.add(change, 0 if isinstance(change, TransactionEnded) else end_offset)\n",
        Hunt.GROUPS,
    ),
    Mutant(
        165,
        "offsets of a transaction are written outside of it",
        COMMIT,
        "        step.transaction = TransactionWrite(request.producer_id, request.producer_epoch, guard=event.guard)\n",
        "",
        Hunt.GROUPS,
    ),
)
