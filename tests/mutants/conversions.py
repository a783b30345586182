"""Planted in consumer groups that change their protocol, and in what serves their members of the classic protocol."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Hunt, Mutant

CONVERSION: Final = "coordinator/consumer/conversion.py"
CLASSIC_MEMBERS: Final = "coordinator/consumer/classic_members.py"

CONVERSION_MUTANTS: Final = (
    Mutant(
        480,
        "the members of a group that becomes a consumer group have no session",
        CONVERSION,
        "            step.schedule(ConsumerTimer.SESSION, self.group, member.session_timeout_ms, member.member_id)\n",
        "            pass\n",
        Hunt.CONVERSIONS,
    ),
    Mutant(
        481,
        "a member of the classic protocol fetches its target, be it free or not",
        CLASSIC_MEMBERS,
        "written_assignment(member.assigned, read_version(subscription), step.image)",
        "written_assignment(group.targets.get(member.member_id, {}), read_version(subscription), step.image)",
        Hunt.CONVERSIONS,
    ),
    Mutant(
        482,
        "a member of the classic protocol that joins counts as having revoked what it still owns",
        CLASSIC_MEMBERS,
        "fault = update.reconcile(partitions_by_id(subscription.owned_partitions, step.image))",
        "fault = update.reconcile({})",
        Hunt.CONVERSIONS,
    ),
    Mutant(
        483,
        "a member of the classic protocol does not hear that the partitions for which it waits are free",
        CLASSIC_MEMBERS,
        "            or (member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_release(member))\n",
        "",
        Hunt.CONVERSIONS,
    ),
    Mutant(
        484,
        "a member of the classic protocol that is told to rejoin may stay away",
        CLASSIC_MEMBERS,
        "    if not step.timers.has(TimerKey(ConsumerTimer.JOIN, group.group_id, member.member_id)):\n",
        "    if False:\n",
        Hunt.CONVERSIONS,
    ),
    Mutant(
        485,
        "a group that becomes a classic one begins at generation 0",
        CONVERSION,
        "    classic.generation = group.epoch\n",
        "",
        Hunt.CONVERSIONS,
    ),
    Mutant(
        486,
        "a group becomes a classic one though downgrades are disabled",
        CONVERSION,
        "    return step.config.consumer.migration_policy.is_downgrade_enabled and members_count <=",
        "    return members_count <=",
        Hunt.CONVERSIONS,
    ),
    Mutant(
        487,
        "the records of the classic group stay in the log of the consumer group",
        CONVERSION,
        "        *classic.tombstones(),\n        *(member_change",
        "        *(member_change",
        Hunt.CONVERSIONS,
    ),
    Mutant(
        488,
        "the epoch of a group that becomes a consumer group begins anew",
        CONVERSION,
        "group.epoch = group.assignment_epoch = epoch = classic.generation",
        "group.epoch = group.assignment_epoch = epoch = 1",
        Hunt.CONVERSIONS,
    ),
    Mutant(
        490,
        "a join that is parked has no answer when the group becomes a consumer group",
        CONVERSION,
        "            refuse_join(step, self.upgraded, member, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)\n",
        "",
        Hunt.CONVERSIONS,
    ),
    Mutant(
        492,
        "members of the classic protocol alone never get a new target",
        CLASSIC_MEMBERS,
        "        if group.classic_members_count == len(group.members):\n",
        "        if False:\n",
        Hunt.CONVERSIONS,
    ),
    Mutant(
        493,
        "the records of the consumer group stay in the log of the classic group",
        CONVERSION,
        "    step.write(*tombstones, generation_change(classic, assignments))",
        "    step.write(generation_change(classic, assignments))",
        Hunt.CONVERSIONS,
    ),
    Mutant(
        494,
        "a group becomes a consumer group though upgrades are disabled",
        CONVERSION,
        "    if not step.config.consumer.migration_policy.is_upgrade_enabled:\n",
        "    if False:\n",
        Hunt.CONVERSIONS,
    ),
    Mutant(
        495,
        "a member of the classic protocol that has joined need not fetch its assignment",
        CLASSIC_MEMBERS,
        "            step.schedule(ConsumerTimer.SYNC, self.group, self.rebalance_timeout_ms, member_id)\n",
        "            pass\n",
        Hunt.CONVERSIONS,
    ),
    Mutant(
        496,
        "what a cooperative member still owns is free when the group becomes a consumer group",
        CONVERSION,
        "        for topic, indexes in partitions_by_id(subscription.owned_partitions, image).items():\n",
        "        for topic, indexes in partitions_by_id((), image).items():\n",
        Hunt.CONVERSIONS,
    ),
)
