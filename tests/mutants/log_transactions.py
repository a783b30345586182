"""The planted bugs of transactions in a log: its last stable offset, its transaction index, its verifications."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Hunt, Mutant

LOG_TRANSACTION_MUTANTS: Final = (
    Mutant(
        190,
        "an aborted transaction that began before the fetch is not listed",
        "storage/segment/transaction_index.py",
        "            if aborted.first_offset < end_offset:\n",
        "            if first_offset <= aborted.first_offset < end_offset:\n",
        Hunt.REPLICAS,
    ),
    Mutant(
        191,
        "an open transaction is forgotten by a new leader",
        "replication/partition.py",
        "            self.log.producers.verifications.clear()\n            self.lag_behind_leader = 0\n",
        "            self.log.producers.verifications.clear()\n"
        "            self.log.producers._open_transactions.clear()\n"
        "            self.lag_behind_leader = 0\n",
        Hunt.REPLICAS,
    ),
    Mutant(
        192,
        "the transaction index is not cut with the log",
        "storage/segment/segment.py",
        "        self.transaction_index.truncate_to(offset)\n        self.truncate_file(",
        "        self.truncate_file(",
        Hunt.REPLICAS,
    ),
    Mutant(
        193,
        "a produce after the marker opens a transaction again: any guard is good",
        "storage/producers/producer_state.py",
        "            and (guard is None or guard is not noted)\n",
        "            and guard is None\n",
        Hunt.REPLICAS,
    ),
    Mutant(
        194,
        "a produce after the marker opens a transaction again: the marker leaves the guard",
        "storage/producers/producer_state.py",
        "        self.verifications.drop_guard_after_append(header)\n"
        "        entry = self.entries.get(header.producer_id)\n",
        "        entry = self.entries.get(header.producer_id)\n",
        Hunt.REPLICAS,
    ),
    Mutant(
        195,
        "a marker that comes once more ends the next transaction",
        "storage/producers/producer_state.py",
        "            transaction_version >= EPOCH_BUMP_VERSION\n            and epoch",
        "            transaction_version > EPOCH_BUMP_VERSION\n            and epoch",
        Hunt.REPLICAS,
    ),
    Mutant(
        196,
        "a transaction is decided before its marker is committed",
        "storage/producers/producer_state.py",
        "            if completed.last_offset >= high_watermark:\n                break\n",
        "",
        Hunt.REPLICAS,
    ),
    Mutant(
        197,
        "the transaction index keeps one marker that was cut",
        "storage/segment/transaction_index.py",
        "        kept_count = sum(aborted.last_offset < offset for aborted in entries)\n",
        "        kept_count = sum(aborted.last_offset <= offset for aborted in entries)\n",
        Hunt.REPLICAS,
    ),
    Mutant(
        198,
        "an open transaction of a snapshot is forgotten",
        "storage/producers/producer_state.py",
        "            self._open_transactions[entry.open_transaction_offset] = entry.producer_id\n\n",
        "            pass\n\n",
        Hunt.REPLICAS,
    ),
    Mutant(
        200,
        "zeros in a transaction index are an aborted transaction",
        "storage/segment/transaction_index.py",
        "    in_order = max(offset_before, entry.first_offset) < entry.last_offset\n",
        "    in_order = offset_before < entry.last_offset\n",
        Hunt.STORIES,
    ),
    Mutant(
        201,
        "the entry of a marker that was cut comes back with a loss of power",
        "storage/log/log_state.py",
        "            segment.note_not_synced()  # entries",
        "            pass  # entries",
        Hunt.STORIES,
    ),
    Mutant(
        202,
        "a marker does not move the epoch of its producer",
        "storage/producers/producer_state.py",
        "        entry.change_epoch(header.producer_epoch)\n        entry.coordinator_epoch",
        "        entry.coordinator_epoch",
        Hunt.REPLICAS,
    ),
)
