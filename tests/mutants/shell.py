"""Planted in the shell around the state machines: topics whose names are used again, retention, acknowledgements,
sessions of brokers, answers of the controller, fetch sessions, and moves of replicas.
"""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Hunt, Mutant
from tests.simulation.cluster.plan import Fault

CHURN: Final = (("small_snapshots", True), ("churns_topics", True))

SHELL_MUTANTS: Final = (
    Mutant(
        108,
        "a fetcher keeps the topic id that a name had first",
        "replication/replica_fetcher.py",
        "        followed = FollowedPartition(partition)\n        self._followed[followed.key] = followed\n",
        "        followed = FollowedPartition(partition)\n"
        '        ids = self.__dict__.setdefault("_ids", {})\n'
        "        followed.key = ids.setdefault((partition.topic, partition.index), followed.key)\n"
        "        self._followed[followed.key] = followed\n",
        Hunt.SCENARIOS,
    ),
    Mutant(
        109,
        "a skip to a snapshot keeps a topic whose name is used again",
        "kraft/image/difference.py",
        "for topic in before.by_id.values() if topic.id not in after.by_id}\n",
        "for topic in before.by_id.values() if topic.name not in after.ids}\n",
        Hunt.SCENARIOS,
    ),
    Mutant(
        110,
        "a start adopts the log of a former topic of the same name",
        "broker/replicas/local_logs.py",
        "        if assigned is None or not assigned.has(opened.topic_id, opened.end_offset):\n",
        "        opened.topic_id = None\n        if assigned is None:\n",
        Hunt.SCENARIOS,
    ),
    Mutant(
        136,
        "a start adopts records without a topic id",
        "broker/replicas/local_logs.py",
        "(topic_id is None and not end_offset)\n",
        "topic_id is None\n",
        Hunt.SCENARIOS,
    ),
    Mutant(
        137,
        "a start takes a topic id in the page cache for durable",
        "storage/log/log_state.py",
        "    is_id_durable = loaded.was_clean or loaded.topic_id is None\n",
        "    is_id_durable = True\n",
        Hunt.SCENARIOS,
    ),
    Mutant(
        138,
        "a log is made where that of a former topic is being repaired",
        "broker/replicas/local_logs.py",
        "        if _is_occupied(self.directories, (topic, index)):\n",
        "        if False:\n",
        Hunt.STORIES,
    ),
    Mutant(
        139,
        "the damaged log of a former topic is repaired for the next one",
        "broker/replicas/local_logs.py",
        "            if assigned is None or not directory.damaged.may_belong_to(*key, assigned.topic_id):\n",
        "            if assigned is None:\n",
        Hunt.STORIES,
    ),
    Mutant(
        111,
        "retention deletes up to the end of the log",
        "broker/replicas/log_jobs.py",
        "delete_old_segments(self._environment.wall_ms(), partition.high_watermark)",
        "delete_old_segments(self._environment.wall_ms(), partition.log.end_offset)",
        shape=(("retains", "bytes"), ("flushes", False)),
    ),
    Mutant(
        112,
        "acks=1 is answered before the append",
        "broker/apis/records/produce.py",
        "        result = partition.append(records, self._request.acks, self._now_ms, version)\n",
        "        acks = self._request.acks\n"
        "        if acks == 1:\n"
        "            end_offset, start = partition.log.end_offset, partition.log.log_start_offset\n"
        "            result = AppendResult(NONE, end_offset, end_offset, -1, start)\n"
        "            copied = bytes(records)\n"
        "            loop = self._services.purgatory._loop\n"
        "            loop.call_soon(partition.append, copied, acks, self._now_ms, version)\n"
        "        else:\n"
        "            result = partition.append(records, acks, self._now_ms, version)\n",
    ),
    Mutant(
        113,
        "a heartbeat that is refused keeps the session alive",
        "kraft/controller/nodes/broker_lifecycle.py",
        "    if broker is None or broker.epoch != request.broker_epoch:\n        return refused(",
        "    if broker is not None:\n"
        "        sessions.touch(broker.id, broker.epoch, context.now_ms, request.current_metadata_offset)\n"
        "    if broker is None or broker.epoch != request.broker_epoch:\n        return refused(",
        Hunt.CONTROLLER,
    ),
    Mutant(
        114,
        "a new log start alone is no news in a fetch session",
        "replication/fetch_session.py",
        "            or data.log_start_offset != self.log_start_offset\n",
        "",
        Hunt.SCENARIOS,
    ),
    Mutant(
        115,
        "a replica that is moved is in sync after one fetch",
        "replication/leadership.py",
        "        if follower.end_offset < max(high_watermark, self.epoch_start_offset):\n",
        "        needed = max(high_watermark, self.epoch_start_offset) if len(self.replicas) <= 3 else 1\n"
        "        if follower.end_offset < needed:\n",
        faults=(Fault.REASSIGN, Fault.KILL),
        shape=(("nodes", 4), ("properties", (("replica.fetch.max.bytes", "300"),))),
    ),
    Mutant(
        116,
        "a block of producer ids is told before it is committed",
        "broker/metadata/active_controller.py",
        "        self._publisher.reply_when_committed(self._end_offset, reply, answer, given_up)\n",
        '        is_block = type(request).__name__ == "AllocateProducerIdsRequest"\n'
        "        end_offset = -1 if is_block else self._end_offset\n"
        "        self._publisher.reply_when_committed(end_offset, reply, answer, given_up)\n",
    ),
    Mutant(
        117,
        "a low watermark is told before the followers have deleted",
        "broker/apis/records/delete_records.py",
        "    answer.low_watermark = partition.low_watermark(services.cluster.is_alive)\n",
        "    answer.low_watermark = partition.log.log_start_offset\n",
        Hunt.STORIES,
    ),
    Mutant(
        118,
        "what is deleted is fetched on",
        "broker/replicas/roles.py",
        "        self._fetchers.unfollow(partition)\n        partition.notify_removed()\n",
        "        partition.notify_removed()\n",
        shape=CHURN,
    ),
    Mutant(
        120,
        "retention of a follower deletes up to the end of its log",
        "broker/replicas/log_jobs.py",
        "delete_old_segments(self._environment.wall_ms(), partition.high_watermark)",
        "delete_old_segments(self._environment.wall_ms(), "
        "partition.high_watermark if partition.is_leader else partition.log.end_offset)",
        shape=(("retains", "bytes"), ("flushes", False)),
    ),
    Mutant(
        121,
        "acks=1 is answered before the record is durable",
        "broker/apis/records/produce_reply.py",
        "    return partition.awaits_flush or (acks",
        "    return (partition.awaits_flush and acks != 1) or (acks",
        flushes=True,
        shape=(("careless", 1),),
    ),
    Mutant(
        122,
        "acks=1 is answered after a sync that failed",
        "broker/apis/records/produce_reply.py",
        "            if failure is not None:\n                _refuse(",
        "            if False:\n                _refuse(",
        faults=(Fault.DISK_ERROR, Fault.LOSE_DIRECTORY),
        flushes=True,
        shape=(("careless", 1), ("directories", 2)),
    ),
    Mutant(
        123,
        "acks=1 is answered though the append was refused",
        "broker/apis/records/produce_reply.py",
        "    if result.error is NONE:\n        return PartitionProduceResponse(",
        "    if result.error in (NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER):\n        return PartitionProduceResponse(",
        faults=(Fault.KILL_LEADER, Fault.MOVE_LEADERS),
        shape=(("careless", 1),),
    ),
    Mutant(
        124,
        "acks=1 is answered before a large batch is examined",
        "broker/apis/records/produce.py",
        "        return None if self._request.acks == 0 else reply\n",
        "        if self._request.acks == 1:\n"
        "            return self._finished()\n"
        "        return None if self._request.acks == 0 else reply\n",
        shape=(("careless", 1), ("loop_records_max", 2), ("batch_records_max", 4)),
    ),
    Mutant(
        125,
        "a heartbeat that is refused ends a silence",
        "kraft/controller/nodes/broker_lifecycle.py",
        "    if broker is None or broker.epoch != request.broker_epoch:\n        return refused(",
        "    context.failures.heartbeat(request.broker_id, context.now_ms)\n"
        "    if broker is None or broker.epoch != request.broker_epoch:\n        return refused(",
        Hunt.CONTROLLER,
    ),
    Mutant(
        126,
        "a registration that is refused keeps the session of the one before alive",
        "kraft/controller/nodes/broker_registration.py",
        "    is_alive = context.sessions.is_alive(existing, context.now_ms)\n",
        "    is_alive = context.sessions.is_alive(existing, context.now_ms)\n"
        "    if existing is not None and is_alive:\n"
        "        context.sessions.touch(existing.id, existing.epoch, context.now_ms)\n",
        Hunt.CONTROLLER,
    ),
    Mutant(
        127,
        "a replica that is moved away is fetched on",
        "broker/replicas/metadata_applier.py",
        "        if partition is not None:\n            self._to.roles.forget(partition)\n",
        "        if partition is not None:\n",
        faults=(Fault.REASSIGN,),
        shape=(("nodes", 4),),
    ),
    Mutant(
        128,
        "a topic is said to be made before that is committed",
        "broker/metadata/active_controller.py",
        "        self._publisher.reply_when_committed(self._end_offset, reply, answer, given_up)\n",
        '        is_topic = type(request).__name__ == "CreateTopicsRequest"\n'
        "        end_offset = -1 if is_topic else self._end_offset\n"
        "        self._publisher.reply_when_committed(end_offset, reply, answer, given_up)\n",
    ),
    Mutant(
        131,
        "the low watermark is that of the follower that is ahead",
        "replication/partition.py",
        "        return min((self.log.log_start_offset, *starts))\n",
        "        return max((self.log.log_start_offset, *starts))\n",
        Hunt.STORIES,
    ),
    Mutant(
        132,
        "a fetcher of the leader before is not told of the next one",
        "broker/replicas/replica_fetchers.py",
        "            if leader_id != partition.leader_id:\n                fetcher.unfollow(partition)\n",
        "            pass\n",
        faults=(Fault.MOVE_LEADERS, Fault.KILL_LEADER),
    ),
    Mutant(
        133,
        "a high watermark is read that lies before the log",
        "broker/replicas/local_logs.py",
        "        return min(max(known, opened.log_start_offset), opened.end_offset)\n",
        "        return min(known, opened.end_offset)\n",
        faults=(Fault.KILL, Fault.POWER_CUT),
        shape=(("retains", "bytes"),),
    ),
    Mutant(
        134,
        "a topic that is gone is found by its id",
        "broker/replicas/replicas.py",
        "        self.by_id.pop(topic_id, None)\n        self._offline",
        "        self._offline",
        shape=CHURN,
    ),
    Mutant(
        135,
        "a wait for a commit that begins late stands behind later ones",
        "broker/purgatory/purgatory.py",
        "        if not queue or queue[-1].end_offset <= self.end_offset:\n",
        "        if True:\n",
        shape=(("mixed", 2), ("loop_records_max", 2)),
    ),
    Mutant(
        353,
        "a fetch that causes an append waits for another one",
        "broker/apis/records/fetch.py",
        "        if not fetch.awaits_updates() or fetch.has_further_updates():\n",
        "        if not fetch.awaits_updates():\n",
        Hunt.SCENARIOS,
    ),
)
