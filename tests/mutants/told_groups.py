"""Bugs in what is told of groups, their lag and their histories, and in two refusals."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Hunt, Mutant

TOLD_GROUP_MUTANTS: Final = (
    Mutant(
        745,
        "a group that commits keeps the lag of the offsets before, as long as no log grows",
        "broker/exporter/bounds.py",
        "        self.committed, self._before = committed, None\n",
        "        self.committed = committed\n",
        Hunt.STORIES,
    ),
    Mutant(
        746,
        "offsets that have changed are taken for those of the sample before",
        "coordinator/offsets/offset_store.py",
        "            group.changes += 1\n            group.offsets[key] = value\n",
        "            group.offsets[key] = value\n",
        Hunt.STORIES,
    ),
    Mutant(
        790,
        "a partition that a group reads in place of another is taken for it",
        "coordinator/offsets/offset_store.py",
        "            self.removals += 1\n",
        "",
        Hunt.STORIES,
    ),
    Mutant(
        747,
        "a record of a share group that was acknowledged at last comes back again and again",
        "broker/reasons/facts.py",
        "        if each.delivery_count > 1 and each.delivery_state in (AVAILABLE, ARCHIVED)\n",
        "        if each.delivery_count > 1\n",
        Hunt.STORIES,
    ),
    Mutant(
        748,
        "a search with a misspelled parameter finds all records",
        "broker/console/record_pages.py",
        "    visit.refuse_unasked()\n",
        "",
        Hunt.STORIES,
    ),
    Mutant(
        749,
        "partitions of a new topic may have different counts of replicas",
        "kraft/controller/topics/topic_creation.py",
        "        replication_factor = len(assignment.broker_ids)\n",
        "",
        Hunt.STORIES,
    ),
    Mutant(
        780,
        "each new member counts as a rebalance that is trouble",
        "broker/reasons/explain.py",
        " for each in began if each.detail != Cause.JOINED.value) >= REBALANCES_MIN\n",
        " for each in began) >= REBALANCES_MIN\n",
        Hunt.STORIES,
    ),
    Mutant(
        781,
        "a member that heard of its removal is told twice",
        "broker/reasons/explain.py",
        '            if each.member_id in removed and each.detail == "UNKNOWN_MEMBER_ID":\n'
        "                continue  # It heard of its removal, which is told.\n",
        "",
        Hunt.STORIES,
    ),
)
