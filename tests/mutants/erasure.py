"""Planted bugs of the erasure of records: the orders, the rewriting of segments, what a replica hides meanwhile."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Hunt, Mutant

ERASURE_MUTANTS: Final = (
    Mutant(
        601,
        "the last segment with named records is forgotten",
        "storage/erasure/erasing.py",
        "    for slot, segment in enumerate(segments[:-1]):\n",
        "    for slot, segment in enumerate(segments[:-2]):\n",
        Hunt.STORIES,
    ),
    Mutant(
        602,
        "a replica leads before it has erased, and hides nothing",
        "replication/source.py",
        "if isolation is not LOG_END and log.erase_orders.hidden and found.size",
        "if False and log.erase_orders.hidden and found.size",
        Hunt.STORIES,
    ),
    Mutant(
        603,
        "a rewritten segment has no transaction index",
        "storage/erasure/erasing.py",
        "            self.cleaned.note_aborted(aborted)\n",
        "            pass\n",
        Hunt.STORIES,
    ),
    Mutant(
        604,
        "the marker of a transaction is erased",
        "storage/erasure/erasing.py",
        "    if header.is_control or header.records_count <= 0:\n",
        "    if header.records_count <= 0:\n",
        Hunt.STORIES,
    ),
    Mutant(
        605,
        "a batch without records is dropped with its sequence",
        "storage/erasure/erasing.py",
        "            return emptied_batch(header)\n",
        '            return CleanedBatch(b"", header.last_offset, header.max_timestamp)\n',
        Hunt.STORIES,
    ),
    Mutant(
        606,
        "a start does not find the order again",
        "storage/log/pending_orders.py",
        "    if trusted_end_offset < end_offset:\n",
        "    if trusted_end_offset > end_offset:\n",
        Hunt.STORIES,
    ),
    Mutant(
        730,
        "an order is copied before remote storage was searched for what it names",
        "storage/log/pending_orders.py",
        "        return min((each for each in self.tiered if each not in self.searched), default=INT64_MAX)\n",
        "        return INT64_MAX\n",
        Hunt.STORIES,
    ),
    Mutant(
        731,
        "a follower forgets an order that only its own log has carried out",
        "broker/replicas/log_eraser.py",
        "            if is_tiered:\n",
        "            if is_tiered and partition.is_leader:\n",
        Hunt.STORIES,
    ),
    Mutant(
        732,
        "a remote segment without a record of the order is deleted",
        "broker/tiering/erasing.py",
        "                if not _is_replaced(followed, segment):\n                    continue\n",
        "",
        Hunt.STORIES,
    ),
    Mutant(
        733,
        "an erasure deletes what a pin holds",
        "broker/tiering/erasing.py",
        "self._copier.remove(followed, segment, is_remain=is_remain)",
        "self._copier.remove(followed, segment, is_remain=is_remain, honours_pins=False)",
        Hunt.STORIES,
    ),
    Mutant(
        734,
        "a rewritten remote segment has no transaction index",
        "broker/tiering/erasing.py",
        "        if entries:\n",
        "        if False:\n",
        Hunt.STORIES,
    ),
    Mutant(
        735,
        "an order counts as carried out while the replaced objects are there",
        "broker/tiering/erasing.py",
        "        others = [segment for segment, _ in remote_log.superseded()]\n",
        "        others: list[RemoteSegment] = []\n",
        Hunt.STORIES,
    ),
    Mutant(
        750,
        "a record goes with its neighbour that is named",
        "storage/erasure/kept_records.py",
        "                parts.append(records[kept_from:start])\n",
        "                pass\n",
        Hunt.STORIES,
    ),
    Mutant(
        751,
        "of the runs in one batch only the first is erased",
        "storage/erasure/kept_records.py",
        "            while offset > last:\n",
        "            while False:\n",
        Hunt.STORIES,
    ),
)
