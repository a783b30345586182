"""Planted in the coordinators of consumer, share and Streams groups."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Hunt, Mutant

HEARTBEAT: Final = "coordinator/consumer/heartbeat.py"
RECONCILIATION: Final = "coordinator/consumer/reconciliation.py"
MEMBER: Final = "coordinator/consumer/member.py"
LEAVING: Final = "coordinator/consumer/leaving.py"
SHARE: Final = "coordinator/share/heartbeat.py"
STATE_TOPICS: Final = "coordinator/share/state_topics.py"
TASKS: Final = "coordinator/streams/member.py"
STREAMS: Final = "coordinator/streams/heartbeat.py"

HEARTBEAT_GROUP_MUTANTS: Final = (
    Mutant(
        400,
        "a heartbeat of any former epoch is accepted",
        HEARTBEAT,
        "    if epoch == member.previous_epoch and epoch < member.epoch and owned is not None:\n",
        "    if epoch < member.epoch and owned is not None:\n",
        Hunt.CONSUMER_GROUPS,
    ),
    Mutant(
        401,
        "a member with the epoch before its own may own more than it was given",
        HEARTBEAT,
        "        if all(topic in assigned and assigned[topic].keys() >= set(indexes)"
        " for topic, indexes in owned.items()):\n",
        "        if assigned is not None:\n",
        Hunt.CONSUMER_GROUPS,
    ),
    Mutant(
        402,
        "a partition is given before it is revoked",
        RECONCILIATION,
        "                if self.is_owned_by_any(topic, partition) and",
        "                if self.target_epoch < 0 and",
        Hunt.CONSUMER_GROUPS,
    ),
    Mutant(
        403,
        "a member goes on although it still owns what it has to revoke",
        RECONCILIATION,
        "        if revoking and self._still_owns(revoking):\n"
        "            return replace(\n"
        "                member,\n"
        "                state=MemberState.UNREVOKED_PARTITIONS,\n"
        "                epoch=epoch,\n",
        "        if False:\n"
        "            return replace(\n"
        "                member,\n"
        "                state=MemberState.UNREVOKED_PARTITIONS,\n"
        "                epoch=epoch,\n",
        Hunt.CONSUMER_GROUPS,
    ),
    Mutant(
        404,
        "what a member has to revoke is free for others",
        "coordinator/consumer/group.py",
        "            for partitions in (member.assigned, member.revoking):\n                for topic_id, epochs",
        "            for partitions in (member.assigned,):\n                for topic_id, epochs",
        Hunt.CONSUMER_GROUPS,
    ),
    Mutant(
        405,
        "a member may keep for ever what it has to revoke",
        LEAVING,
        "    if key.kind is not ConsumerTimer.REBALANCE or is_revoking:\n",
        "    if key.kind is not ConsumerTimer.REBALANCE:\n",
        Hunt.CONSUMER_GROUPS,
    ),
    Mutant(
        406,
        "a coordinator that took over forgets who has to revoke",
        LEAVING,
        "            step.schedule(ConsumerTimer.REBALANCE, group, member.rebalance_timeout_ms, member.member_id)\n",
        "            pass\n",
        Hunt.CONSUMER_GROUPS,
    ),
    Mutant(
        407,
        "an offset is committed with the epoch of a partition's former owner",
        "coordinator/consumer/commit.py",
        "    return since is not None and epoch >= since\n",
        "    return True\n",
        Hunt.CONSUMER_GROUPS,
    ),
    Mutant(
        408,
        "the log does not say what a member has to revoke",
        MEMBER,
        "        partitions_pending_revocation=_written(member.revoking),\n",
        "        partitions_pending_revocation=[],\n",
        Hunt.CONSUMER_GROUPS,
    ),
    Mutant(
        409,
        "a session begins with the join, and heartbeats do not prolong it",
        HEARTBEAT,
        "    step.schedule(ConsumerTimer.SESSION, group, settings.session_timeout_ms, member_id)\n",
        "    if is_join:\n"
        "        step.schedule(ConsumerTimer.SESSION, group, settings.session_timeout_ms, member_id)\n",
        Hunt.CONSUMER_GROUPS,
    ),
    Mutant(
        410,
        "topics that change do not raise the epoch of the group",
        "coordinator/consumer/member_update.py",
        "        if raises_epoch or metadata_hash != self.group.metadata_hash:\n",
        "        if raises_epoch:\n",
        Hunt.CONSUMER_GROUPS,
    ),
    Mutant(
        411,
        "a heartbeat is answered before its records are committed",
        "coordinator/group/membership.py",
        "        answer_when_committed(step, event.waiter, decided, refused)\n",
        "        step.reply(event.waiter, decided)\n",
        Hunt.CONSUMER_GROUPS,
    ),
    Mutant(
        420,
        "a share member with any former epoch is accepted",
        SHARE,
        "    if received == member.previous_epoch:\n",
        "    if received < member.epoch:\n",
        Hunt.SHARE_GROUPS,
    ),
    Mutant(
        421,
        "share partitions are assigned while they are being initialized",
        "coordinator/share/heartbeat.py",
        "members, group.state_topics.initialized, {**group.targets}",
        "members, {**group.state_topics.initialized, **group.state_topics.initializing}, {**group.targets}",
        Hunt.SHARE_GROUPS,
    ),
    Mutant(
        422,
        "an initialization that an earlier one made needless begins the state anew",
        STATE_TOPICS,
        "            if each.topic_id in initializing and each.partition in initializing[each.topic_id].partitions\n",
        "",
        Hunt.SHARE_GROUPS,
    ),
    Mutant(
        423,
        "an initialization without an outcome is never repeated",
        STATE_TOPICS,
        "            if step.now_ms - began_ms < interval_ms:\n",
        "            if step.now_ms >= began_ms:\n",
        Hunt.SHARE_GROUPS,
    ),
    Mutant(
        424,
        "the start offsets of a share group change under its members",
        "coordinator/share/offsets.py",
        "    own = ShareGroup(event.group_id) if group is None else group\n    if own.members:\n",
        "    own = ShareGroup(event.group_id) if group is None else group\n    if not own:\n",
        Hunt.SHARE_GROUPS,
    ),
    Mutant(
        425,
        "a coordinator that took over expects nothing of the members of share groups",
        SHARE,
        "        step.schedule(ShareTimer.SESSION, group, settings.session_timeout_ms, member_id)\n",
        "        pass\n",
        Hunt.SHARE_GROUPS,
    ),
    Mutant(
        430,
        "a task becomes active on a second process",
        TASKS,
        "        return task in self.active or self._is_copied_on(task, process_id)\n",
        "        return self._is_copied_on(task, process_id)\n",
        Hunt.STREAMS_GROUPS,
    ),
    Mutant(
        431,
        "a task that a process had stays taken",
        "coordinator/streams/group.py",
        "        if former is not None:\n            self.owners.remove(former)\n",
        "",
        Hunt.STREAMS_GROUPS,
    ),
    Mutant(
        432,
        "a member of a Streams group with the epoch before its own may have any tasks",
        STREAMS,
        "    if epoch == member.previous_epoch and epoch < member.epoch and member.owns_only_assigned(owned):\n",
        "    if epoch == member.previous_epoch and epoch < member.epoch:\n",
        Hunt.STREAMS_GROUPS,
    ),
    Mutant(
        433,
        "a task has its standby on the process where it is active",
        TASKS,
        "        return self.active.get(task) == process_id or self._is_copied_on(task, process_id)\n",
        "        return self._is_copied_on(task, process_id)\n",
        Hunt.STREAMS_GROUPS,
    ),
    Mutant(
        434,
        "tasks that have to be revoked are not in the log",
        "coordinator/streams/records.py",
        "        active_tasks_pending_revocation=_with_epochs(member.to_revoke.active),\n",
        "        active_tasks_pending_revocation=[],\n",
        Hunt.STREAMS_GROUPS,
    ),
    Mutant(
        435,
        "an offset of a task is committed with an epoch before the member had it",
        "coordinator/streams/commit.py",
        "        if given is None or epoch < given:\n",
        "        if given is None:\n",
        Hunt.STREAMS_GROUPS,
    ),
    Mutant(
        436,
        "a member of a Streams group may keep for ever what it has to revoke",
        "coordinator/streams/membership.py",
        "    elif member.state is MemberState.UNREVOKED_TASKS:\n        cause",
        "    elif member.state is MemberState.UNKNOWN:\n        cause",
        Hunt.STREAMS_GROUPS,
    ),
    Mutant(
        476,
        "topics that come are not searched for with the regular expressions that are resolved",
        "coordinator/consumer/regular_expressions.py",
        "        or resolved.version < step.image.topics_changed_at\n",
        "",
        Hunt.CONSUMER_GROUPS,
    ),
    Mutant(
        501,
        "a partition that a member keeps gets the epoch of its new target",
        RECONCILIATION,
        "kept = {partition: since for partition, since in has.items() if partition in wanted}",
        "kept = {partition: self.target_epoch for partition, since in has.items() if partition in wanted}",
        Hunt.CONSUMER_GROUPS,
    ),
    Mutant(
        506,
        "a member keeps partitions of a topic that it has unsubscribed from",
        RECONCILIATION,
        "            wanted = self.target.get(topic, frozenset()) if topic in self.subscribed else frozenset()\n",
        "            wanted = self.target.get(topic, frozenset())\n",
        Hunt.CONSUMER_GROUPS,
    ),
    Mutant(
        510,
        "a share member with an epoch that the group has not reached is accepted",
        SHARE,
        '        return fenced_by_epoch("share", received, member.epoch)\n    if received == member.previous_epoch:\n',
        "        return None\n    if received == member.previous_epoch:\n",
        Hunt.SHARE_GROUPS,
    ),
    Mutant(
        677,
        "a heartbeat of a share member is repeated though its group has another epoch",
        SHARE,
        "        and heartbeat.epoch == group.assignment_epoch == group.epoch\n",
        "",
        Hunt.SHARE_GROUPS,
    ),
    Mutant(
        511,
        "a share member gets partitions of a topic to which it is not subscribed",
        SHARE,
        "assigned=frozenset(each for each in self._target if each[0] in subscribed)",
        "assigned=frozenset(self._target)",
        Hunt.SHARE_GROUPS,
    ),
    Mutant(
        512,
        "topics that are deleted stay initialized in share groups",
        STATE_TOPICS,
        "        {key: topic for key, topic in known.initialized.items() if key not in topic_ids},\n",
        "        dict(known.initialized),\n",
        Hunt.SHARE_GROUPS,
    ),
    Mutant(
        513,
        "share partitions whose initialization failed may be assigned",
        STATE_TOPICS,
        "        done = partitions & all_done.get(topic_id, NO_PARTITIONS)\n",
        "        done = partitions & {*all_done.get(topic_id, ()), *all_failed.get(topic_id, ())}\n",
        Hunt.SHARE_GROUPS,
    ),
    Mutant(
        545,
        "settings that change do not raise the epoch of a Streams group",
        STREAMS,
        "            or configs != group.assignment_configs\n",
        "",
        Hunt.STREAMS_GROUPS,
    ),
    Mutant(
        694,
        "the description of a large group is made at once",
        "coordinator/group/description.py",
        "            yield from part.pieces()\n",
        "            part.whole()\n            yield\n",
        Hunt.STORIES,
    ),
    Mutant(
        695,
        "a description tells targets that came after the request",
        "coordinator/consumer/describe.py",
        "{**group.targets}, image)",
        "group.targets, image)",
        Hunt.STORIES,
    ),
    Mutant(
        792,
        "a repeated heartbeat is answered after the group has moved on",
        HEARTBEAT,
        "        and heartbeat.epoch == group.assignment_epoch == group.epoch\n",
        "",
        Hunt.CONSUMER_GROUPS,
    ),
    Mutant(
        793,
        "a repeated heartbeat of a former generation is taken",
        "coordinator/classic/membership.py",
        "        and group.generation == heartbeat.epoch\n",
        "",
        Hunt.GROUPS,
    ),
    Mutant(
        794,
        "a repeated heartbeat is answered before what the group wrote is committed",
        "coordinator/shard/shard.py",
        "            and (kind.is_ahead_of_log or self.is_committed)\n",
        "",
        Hunt.CONSUMER_GROUPS,
    ),
)
