"""Bugs that were planted untold and lived, or died late: each stands for a gap of the simulator that was closed."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Hunt, Mutant

UNSEEN_MUTANTS: Final = (
    Mutant(
        361,
        "the position in the remote metadata runs ahead of a partition that is followed during a decode",
        "broker/tiering/remote_log_metadata.py",
        "            return True  # Another partition was followed in the meantime, and the reader begins anew.\n"
        "        for offset, reason in unreadable:\n",
        "            pass\n        for offset, reason in unreadable:\n",
        Hunt.SCENARIOS,
    ),
    Mutant(
        362,
        "the rate of a client that stays active is dropped after an hour",
        "security/quotas/throttling.py",
        "        known.recorded_ms = now_ms\n",
        "",
        Hunt.QUOTAS,
    ),
    Mutant(
        363,
        "the rate of a client that returns lacks the windows before its pause",
        "security/quotas/sampled_rate.py",
        "            if now_ms - sample.last_ms >= age_ms:\n",
        "            if now_ms - sample.last_ms >= age_ms // 2:\n",
        Hunt.QUOTAS,
    ),
    Mutant(
        364,
        "a session that was renewed has no end",
        "broker/network/authentication/sasl.py",
        "        if accepted.session_ms:\n",
        "        if accepted.session_ms and not accepted.is_renewal:\n",
        Hunt.SESSIONS,
    ),
    Mutant(
        365,
        "a session that was renewed ends with the one before",
        "broker/network/authentication/sasl.py",
        "        if self._session_timer is not None:\n"
        "            self._session_timer.cancel()\n            self._session_timer = None\n",
        "",
        Hunt.SESSIONS,
    ),
    Mutant(
        669,
        "a session ends within its renewal",
        "broker/network/authentication/sasl.py",
        "                self._end_session()\n                self._serve_only()\n",
        "                self._serve_only()\n",
        Hunt.SESSIONS,
    ),
    Mutant(
        366,
        "a marker of a former transaction coordinator is taken",
        "storage/producers/producer_state.py",
        "        if marker.coordinator_epoch < entry.coordinator_epoch:\n",
        "        if marker.coordinator_epoch < NO_COORDINATOR_EPOCH:\n",
        Hunt.REPLICAS,
    ),
    Mutant(
        367,
        "a transaction coordinator that took over confirms every partition",
        "coordinator/transaction/lifecycle.py",
        "    return {partition: membership_error(transaction, partition) for partition in event.partitions}\n",
        "    if step.coordinator_epoch > 0:\n"
        "        return dict.fromkeys(event.partitions, ErrorCode.NONE)\n"
        "    return {partition: membership_error(transaction, partition) for partition in event.partitions}\n",
        Hunt.TRANSACTIONS,
    ),
    Mutant(
        368,
        "a read_committed fetch is not woken by one marker",
        "broker/purgatory/purgatory.py",
        "        if offset != self._seen_last_stable_offset:\n",
        "        if offset > self._seen_last_stable_offset + 1:\n",
        Hunt.WAITS,
    ),
    Mutant(
        369,
        "a read_committed fetch is woken by the append, and not by the commit",
        "broker/apis/records/fetch.py",
        "    FetchIsolation.TXN_COMMITTED: LAST_STABLE_OFFSET,\n",
        "    FetchIsolation.TXN_COMMITTED: LOG_END_OFFSET,\n",
        Hunt.WAITS,
    ),
    Mutant(
        370,
        "the file of a replaced segment is note_closed under its readers",
        "storage/segment/segment.py",
        "        if self._open_file is not None:\n"
        "            self._open_file = None\n            self._fs.open_files.note_closed(self)\n",
        "        if self._open_file is not None:\n            self._open_file.file.close()\n"
        "            self._open_file = None\n            self._fs.open_files.note_closed(self)\n",
        Hunt.LOG_CLEANER,
    ),
    Mutant(
        371,
        "a SCRAM credential may have fewer than 4,096 iterations",
        "kraft/controller/security/scram_control.py",
        "    if upsertion.iterations < ITERATIONS_MIN:\n",
        "    if upsertion.iterations < 1:\n",
        shape=(("changes_security", True),),
    ),
    Mutant(
        372,
        "offsets of a transaction are pending for readers from their append on",
        "coordinator/offsets/offset_store.py",
        "        self._uncommitted.add(change, end_offset)\n",
        "        is_pending = isinstance(change, OffsetChange) and change.producer_id != NO_PRODUCER_ID\n"
        "        self._uncommitted.add(change, 0 if is_pending else end_offset)\n",
        Hunt.GROUPS,
    ),
    Mutant(
        373,
        "a transaction that times out keeps the epoch of its producer",
        "coordinator/transaction/lifecycle.py",
        "        after = aborted_by_coordinator(step, transaction, transaction_version)\n",
        "        after = aborted_by_coordinator(step, transaction, transaction_version)\n"
        "        if after is not None:\n"
        "            after = after._replace(producer_epoch=transaction.producer_epoch)\n",
        Hunt.TRANSACTIONS,
    ),
)
