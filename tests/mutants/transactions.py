"""Planted in the coordinator of transactions, and in what leaders do for it."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Hunt, Mutant
from tests.simulation.cluster.eager import FAMILIES
from tests.simulation.cluster.plan import Fault

TABLE: Final = "coordinator/transaction/table.py"
(FAMILY,) = [each for each in FAMILIES if each.name == "transactions"]
SHAPE: Final = FAMILY.shape
FAULTS: Final = FAMILY.faults


def planted(number: int, name: str, path: str, old: str, new: str, *faults: Fault) -> Mutant:
    return Mutant(number, name, path, old, new, Hunt.SWARM, faults or FAULTS, None, SHAPE)


TRANSACTION_MUTANTS: Final = (
    planted(
        170,
        "InitProducerId does not move the epoch",
        "coordinator/transaction/transaction.py",
        "        producer_epoch=before.producer_epoch + 1,\n        last_epoch=before.producer_epoch if goes_on",
        "        producer_epoch=before.producer_epoch,\n        last_epoch=before.producer_epoch if goes_on",
    ),
    planted(
        171,
        "a produce of an old epoch is taken",
        "storage/producers/producer_state.py",
        "                return ErrorCode.INVALID_PRODUCER_EPOCH\n        noted = ",
        "                return ACCEPTED\n        noted = ",
    ),
    planted(
        172,
        "a repeated EndTxn ends the next transaction",
        TABLE,
        "    ONGOING:         (COMMIT, STALE,    STALE,    STALE,   STALE,   NO_ID),\n",
        "    ONGOING:         (COMMIT, COMMIT,   STALE,    STALE,   STALE,   NO_ID),\n",
    ),
    planted(
        173,
        "markers leave before the prepared state is committed",
        "coordinator/transaction/lifecycle.py",
        "    step.store(event.transactional_id, after)\n    answer = producer_id_answer(after)",
        "    from moldau.coordinator.transaction.transactions import markers_of\n\n"
        "    step.store(event.transactional_id, after)\n"
        "    step.command(markers_of(event.transactional_id, after, step.coordinator_epoch, 0))\n"
        "    answer = producer_id_answer(after)",
    ),
    planted(
        174,
        "a transaction is completed before every marker is acknowledged",
        "coordinator/transaction/lifecycle.py",
        "    completion.partitions_left -= event.partitions\n",
        "    completion.partitions_left.clear()\n",
    ),
    planted(
        175,
        "read_committed is served up to the high watermark",
        "replication/source.py",
        "    return partition.log.end_offset if isolation is LOG_END else partition.last_stable_offset\n",
        "    return partition.log.end_offset if isolation is LOG_END else partition.high_watermark\n",
    ),
    planted(
        176,
        "verification is skipped after a leader change",
        "replication/verification.py",
        "    if partition.leadership is None or not (partition.verifies_transactions or supports_epoch_bump):\n"
        "        return None\n    try:\n",
        "    if partition.leader_epoch > 0:\n        partition.verifies_transactions = False\n"
        "    if partition.leadership is None or not (partition.verifies_transactions or supports_epoch_bump):\n"
        "        return None\n    try:\n",
    ),
    planted(
        177,
        "a timed-out transaction stays open after a coordinator's failover",
        "coordinator/transaction/shard.py",
        "        self._timers.schedule(ABORTS_KEY, step.now_ms + self.config.abort_interval_ms)\n"
        "        self._timers.schedule(EXPIRY_KEY",
        "        if self._coordinator_epoch == 0:\n"
        "            self._timers.schedule(ABORTS_KEY, step.now_ms + self.config.abort_interval_ms)\n"
        "        self._timers.schedule(EXPIRY_KEY",
    ),
    planted(
        178,
        "partitions are added while a commit is prepared",
        TABLE,
        "    ONGOING:         (ADD,    STALE,    NO_ID,    STALE,   STALE,   NO_ID),\n"
        "    PREPARE_COMMIT:  (WAIT,   WAIT,     WAIT,     WAIT,    WAIT,    WAIT),\n",
        "    ONGOING:         (ADD,    STALE,    NO_ID,    STALE,   STALE,   NO_ID),\n"
        "    PREPARE_COMMIT:  (DONE,   WAIT,     WAIT,     WAIT,    WAIT,    WAIT),\n",
    ),
)
