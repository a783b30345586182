"""Planted in the coordinator of transactions, for the simulation of it alone."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Hunt, Mutant

FOLDER: Final = "coordinator/transaction"


def planted(number: int, name: str, module: str, old: str, new: str) -> Mutant:
    return Mutant(number, name, f"{FOLDER}/{module}.py", old, new, Hunt.TRANSACTIONS)


TRANSACTION_COORDINATOR_MUTANTS: Final = (
    planted(
        180,
        "a producer of protocol 1 that is fenced keeps its epoch",
        "transaction",
        "        producer_epoch=min(before.producer_epoch + 1, EPOCH_MAX),\n        last_epoch=NO_PRODUCER_EPOCH,\n",
        "        last_epoch=NO_PRODUCER_EPOCH,\n",
    ),
    planted(
        181,
        "a new coordinator sends no markers of what the former one has prepared",
        "shard",
        "self.config.id_cleanup_interval_ms)\n        send_markers(step)\n",
        "self.config.id_cleanup_interval_ms)\n        list(step.transactions.take_unsent_markers(0))\n",
    ),
    planted(
        182,
        "a request does not wait for the record of the one before",
        "transactions",
        "        if transactional_id in self._pending:\n",
        "        if not transactional_id:\n",
    ),
    planted(
        183,
        "an EndTxn of protocol 2 does not move the epoch",
        "transaction",
        "    is_bumped = client_version >= EPOCH_BUMP_VERSION\n    return",
        "    is_bumped = False\n    return",
    ),
    planted(
        184,
        "a report about an earlier command counts",
        "lifecycle",
        "completion is None or completion.command != event.command or not",
        "completion is None or not",
    ),
    planted(
        185,
        "a client is answered before the outcome is committed",
        "transactions",
        "        self.when_committed(ReplyWhenCommitted(waiter, answer, producer_refused_by_the_log))\n",
        "        self.reply(waiter, answer)\n",
    ),
    planted(
        186,
        "a producer is given epochs above the last one",
        "lifecycle",
        "    if not before.is_exhausted:\n",
        "    if before.producer_id:\n",
    ),
    planted(
        187,
        "a transactional id expires with its transaction open",
        "lifecycle",
        "        and step.transactions.state_or_pending(transactional_id) in FORMER_STATES[DEAD]\n",
        "",
    ),
    planted(
        188,
        "a fenced producer of protocol 2 is told the end of another of protocol 1",
        "table",
        "transaction.client_version >= EPOCH_BUMP_VERSION and producer_epoch + 1",
        "producer_epoch + 1",
    ),
    planted(
        189,
        "a producer that goes on after an error takes the epoch of the next one",
        "lifecycle",
        "    claim = init_claim_of(before, event.producer_id, event.producer_epoch)\n",
        "    claim = init_claim_of(before, event.producer_id, event.producer_epoch)\n"
        "    claim = type(claim).PREVIOUS if claim.name == 'OLDER' else claim\n",
    ),
)
