"""The planted bugs: each a replacement of text in one file. The product knows nothing of them.

Numbers 1 to 22 are the list that the simulator was asked to kill; 23 was found by it; the others were planted to find
out what it does not see. Numbers are names: some are left out.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from tests.simulation.cluster.plan import Fault


class Hunt(Enum):
    """What is run until it fails."""

    RAFT = "raft"
    """Seeds of the pure quorum."""
    SWARM = "swarm"
    """Seeds of whole clusters."""
    SCENARIOS = "scenarios"
    """Scripted stories, where chance would need too long."""


class Mutant(NamedTuple):
    number: int
    name: str
    path: str
    old: str
    new: str
    hunt: Hunt = Hunt.SWARM
    faults: tuple[Fault, ...] = ()
    """Those that bring it out soonest; none: as the seed draws."""
    flushes: bool | None = None
    shape: tuple[tuple[str, object], ...] = ()
    """What a plan needs besides to bring it out: fields and their values."""


LEADERSHIP_MOVES: Final = (Fault.KILL_LEADER, Fault.ISOLATE_LEADER, Fault.KILL, Fault.CUT_ONE_WAY)
POWER: Final = (Fault.POWER_CUT, Fault.CUT_AT_STEP, Fault.ISOLATE_LEADER)

MUTANTS: Final = (
    Mutant(
        1,
        "a vote is granted before quorum-state is synced",
        "kraft/raft/outbox.py",
        "if self._durable_promise < self._promised and isinstance(effect, SAID_TO_OTHERS):",
        "if False:",
        Hunt.RAFT,
    ),
    Mutant(
        2,
        "two votes in one epoch",
        "kraft/raft/unattached.py",
        "return (election.voted_id, election.voted_directory_id) == member.voted_key(ballot.candidate)",
        "return is_long",
        Hunt.RAFT,
    ),
    Mutant(
        3,
        "a candidate with a shorter log is elected",
        "kraft/raft/member.py",
        "return (last_epoch, end_offset) >= (self.log.last_epoch, self.log.end_offset)",
        "return True",
        Hunt.RAFT,
    ),
    Mutant(
        4,
        "an entry of an earlier epoch is committed by counting",
        "kraft/raft/leader.py",
        "if high_watermark <= max(self._service.high_watermark, self._epoch_start_offset):",
        "if high_watermark <= self._service.high_watermark:",
        Hunt.RAFT,
    ),
    Mutant(
        5,
        "the high watermark is what the fastest follower has",
        "replication/leadership.py",
        "for follower in self._decisive:",
        "for follower in sorted(self._decisive, key=lambda each: each.end_offset)[-1:]:",
        faults=LEADERSHIP_MOVES,
    ),
    Mutant(
        6,
        "acks=all is answered after the leader's own append",
        "broker/handlers/produce.py",
        "return partition.awaits_flush or (acks == ACKS_ALL and partition.log.end_offset > partition.high_watermark)",
        "return partition.awaits_flush",
        faults=LEADERSHIP_MOVES,
    ),
    Mutant(
        7,
        "a follower truncates to its high watermark instead of by epoch",
        "replication/replica_fetcher.py",
        "    return min(ours.end_offset, end_offset)",
        "    return min(partition.high_watermark, end_offset)",
        hunt=Hunt.SCENARIOS,
    ),
    Mutant(
        8,
        "the high watermark is raised before the truncation",
        "replication/replica_fetcher.py",
        "            offset = truncation_offset(partition, data.diverging_epoch.epoch,",
        "            partition.follow_high_watermark(data.high_watermark)\n"
        "            offset = truncation_offset(partition, data.diverging_epoch.epoch,",
        hunt=Hunt.SCENARIOS,
    ),
    Mutant(
        9,
        "a diverging epoch is ignored",
        "replication/replica_fetcher.py",
        "elif data.diverging_epoch is not None and data.diverging_epoch.epoch != UNDEFINED:",
        "elif False:",
        faults=LEADERSHIP_MOVES,
    ),
    Mutant(
        10,
        "a replica joins the in-sync set before it has caught up",
        "replication/leadership.py",
        "if follower.end_offset < max(high_watermark, self.epoch_start_offset):",
        "if follower.end_offset < 0:",
        faults=(Fault.KILL, Fault.POWER_CUT),
    ),
    Mutant(
        11,
        "a shrunk set is used before the controller has confirmed it",
        "replication/in_sync_set.py",
        "return (*self.confirmed, *(each for each in self.proposed if each not in self.confirmed))",
        "return self.proposed",
        faults=(Fault.PAUSE, Fault.CUT_ONE_WAY),
    ),
    Mutant(
        12,
        "AlterPartition with a stale partition epoch is accepted",
        "kraft/controller/in_sync_control.py",
        "if data.partition_epoch < partition.partition_epoch:",
        "if False:",
        Hunt.SCENARIOS,
    ),
    Mutant(
        13,
        "a fenced broker is elected",
        "kraft/controller/view.py",
        "return broker is not None and broker.is_active and broker.has_online(",
        "return broker is not None and broker.has_online(",
        faults=(Fault.KILL_LEADER, Fault.KILL_ALL, Fault.KILL),
    ),
    Mutant(
        14,
        "an unclean leader where it is forbidden",
        "kraft/controller/partition_change.py",
        "if replica in safe and may_lead(replica):",
        "if may_lead(replica):",
        faults=(Fault.KILL_LEADER, Fault.KILL_ALL, Fault.PAUSE),
    ),
    Mutant(
        15,
        "a restarted broker keeps its place in the set by its old epoch",
        "kraft/controller/broker_registration.py",
        "[] if is_same else [*changes_of_restart(view, request, existing)]",
        "[]",
        faults=(Fault.POWER_CUT, Fault.CUT_AT_STEP),
        flushes=False,
    ),
    Mutant(
        16,
        "a fetch reply of an old leader epoch is appended",
        "replication/replica_fetcher.py",
        "wish.current_leader_epoch == partition.leader_epoch\n",
        "True\n",
        Hunt.SCENARIOS,
    ),
    Mutant(
        17,
        "producer state is not rebuilt by a new leader",
        "storage/log_follow.py",
        "        take_note(log, header, header.base_offset, header.partition_leader_epoch, each.marker)\n",
        "        take_note(log, header, header.base_offset, header.partition_leader_epoch, each.marker)\n"
        "        log.producers.entries.pop(header.producer_id, None)\n",
        faults=LEADERSHIP_MOVES,
    ),
    Mutant(
        18,
        "a torn tail is kept at recovery",
        "storage/recovery.py",
        "            segment.cut(damage.position, now_ms)\n",
        "",
        faults=POWER,
    ),
    Mutant(
        19,
        "a checkpoint is renamed without syncing the directory",
        "storage/files.py",
        "    fs.sync_directory(parent_directory(path))\n",
        "",
        faults=(Fault.KILL_CONTROLLER, Fault.POWER_CUT),
    ),
    Mutant(
        20,
        "a timed-out acks=all is answered as success",
        "broker/delayed_produce.py",
        "            refuse(answer, ErrorCode.REQUEST_TIMED_OUT)\n",
        "            pass\n",
        faults=LEADERSHIP_MOVES,
    ),
    Mutant(
        21,
        "records above the high watermark are served to consumers",
        "broker/handlers/fetch.py",
        "if request.isolation_level == READ_COMMITTED else partition.high_watermark",
        "if request.isolation_level == READ_COMMITTED else partition.log.end_offset",
        faults=LEADERSHIP_MOVES,
    ),
    Mutant(
        22,
        "an old leader goes on serving after its epoch",
        "replication/partition.py",
        "was_leader, self.leadership = self.leadership is not None, None",
        "was_leader = self.leadership is not None",
        faults=LEADERSHIP_MOVES,
    ),
    Mutant(
        23,
        "a follower reports what it has before it has flushed what it brought along",
        "replication/replica_fetcher.py",
        "            return Flush(partition, partition.leader_epoch)\n        return None",
        "            pass\n        return None",
        Hunt.SCENARIOS,
    ),
    Mutant(
        24,
        "an earlier epoch is said to end where the log does",
        "storage/leader_epochs.py",
        "        if epoch == self.latest_epoch:\n            return EpochEnd(epoch, log_end_offset)",
        "        if True:\n            return EpochEnd(epoch, log_end_offset)",
        faults=LEADERSHIP_MOVES,
    ),
    Mutant(
        25,
        "any end of the wait is an acknowledgement",
        "broker/delayed_produce.py",
        "        if error is not ErrorCode.NONE:\n"
        "            refuse(answer, error)\n"
        "            self._has_failed = True\n"
        "        if not",
        "        if not",
        Hunt.SCENARIOS,
    ),
    Mutant(
        26,
        "a diverging follower's offset counts",
        "broker/follower_fetch.py",
        "<= log.end_offset and divergence(log, wish) is None:",
        "<= log.end_offset:",
        Hunt.SCENARIOS,
    ),
    Mutant(
        27,
        "producer state is not rebuilt after a truncation",
        "storage/log_truncation.py",
        "    load_producers(log.segments, log.snapshots, log.producers, log.log_start_offset, log.end_offset,"
        " now_ms)\n",
        "",
        faults=LEADERSHIP_MOVES,
    ),
    Mutant(
        28,
        "a new leader without a new leader epoch",
        "kraft/image/topics.py",
        "leader_epoch=self.leader_epoch + names_leader",
        "leader_epoch=self.leader_epoch + (names_leader and record.leader < 0)",
        faults=(Fault.KILL_LEADER, Fault.MOVE_LEADERS),
    ),
    Mutant(
        29,
        "a block of producer ids is leased twice",
        "kraft/controller/producer_id_control.py",
        "next_producer_id=first + BLOCK_SIZE",
        "next_producer_id=first",
        faults=(Fault.KILL, Fault.ISOLATE),
    ),
    Mutant(
        30,
        "a reassignment ends before the new replica is in sync",
        "kraft/controller/partition_change.py",
        "    if not isr or not replicas or not set(target.adding) <= set(isr):",
        "    if not isr or not replicas:",
        faults=(Fault.REASSIGN, Fault.KILL),
        shape=(("nodes", 4),),
    ),
    Mutant(
        31,
        "a coordinator answers before what it loaded is committed",
        "broker/groups/shard_runner.py",
        "        await self._until_committed(reader.next_offset)\n",
        "",
        Hunt.SCENARIOS,
    ),
    Mutant(
        32,
        "a commit of a former generation is taken",
        "coordinator/offset_commit.py",
        "if generation == group.generation else ErrorCode.ILLEGAL_GENERATION",
        "",
        faults=(Fault.KILL_COORDINATOR,),
        shape=(("members", 3),),
    ),
    Mutant(
        33,
        "a deposed coordinator goes on",
        "broker/metadata_follower.py",
        "            broker.partition_lost(partition)\n\n    def _delete",
        "            pass\n\n    def _delete",
        faults=(Fault.MOVE_LEADERS,),
    ),
    Mutant(
        34,
        "a snapshot of the metadata forgets the producer ids",
        "kraft/image/metadata_image.py",
        "        if self.next_producer_id > 0:\n            yield",
        "        if False:\n            yield",
        faults=(Fault.KILL, Fault.POWER_CUT),
        shape=(("small_snapshots", True),),
    ),
    Mutant(
        35,
        "a snapshot forgets the eligible replicas",
        "kraft/image/topics.py",
        "            eligible_leader_replicas=list(self.eligible_leader_replicas) or None,\n            last",
        "            eligible_leader_replicas=None,\n            last",
        faults=(Fault.KILL, Fault.ISOLATE_CONTROLLER),
        shape=(
            ("small_snapshots", True),
            ("has_eligible_replicas", True),
        ),
    ),
    Mutant(
        36,
        "a deletion of records goes past the high watermark",
        "storage/log_truncation.py",
        "    if offset > high_watermark:\n        return ErrorCode.OFFSET_OUT_OF_RANGE\n    if offset > log.log_start",
        "    if offset > log.log_start",
        faults=(Fault.KILL_LEADER,),
        shape=(("trims", True),),
    ),
    Mutant(
        37,
        "what is appended during a sync counts as synced",
        "storage/log.py",
        "self.synced_end_offset = max(self.synced_end_offset, self._flush_end_offset)\n        if",
        "self.synced_end_offset = max(self.synced_end_offset, self.end_offset)\n        if",
        Hunt.SCENARIOS,
    ),
    Mutant(
        38,
        "a proposal overtaken by nobody knows what is withdrawn",
        "broker/in_sync_changes.py",
        "            elif not stands(partition, proposal) or error in METADATA_WILL_TELL:\n"
        "                continue\n"
        "            elif error in REFUSED:",
        "            elif not stands(partition, proposal):\n"
        "                continue\n"
        "            elif error in REFUSED or error in METADATA_WILL_TELL:",
        Hunt.SCENARIOS,
    ),
    Mutant(
        39,
        "records are committed by too few in sync",
        "replication/partition.py",
        "        if leadership is None or len(self.isr) < self.min_insync_replicas:\n            return\n        log",
        "        if leadership is None:\n            return\n        log",
        faults=(Fault.KILL, Fault.KILL_ALL, Fault.PAUSE),
        shape=(("has_eligible_replicas", True),),
    ),
    Mutant(
        40,
        "a start takes the end of its log for the high watermark",
        "broker/local_logs.py",
        "return min(max(known, opened.log_start_offset), opened.end_offset)",
        "return opened.end_offset",
        faults=LEADERSHIP_MOVES,
    ),
    Mutant(
        41,
        "the mark of a clean stop outlives the start",
        "storage/log_directory.py",
        "        remove_clean_shutdown(fs, path)\n",
        "",
        faults=(Fault.STOP, Fault.POWER_CUT),
    ),
    Mutant(
        60,
        "what a follower once had counts after it lost it",
        "replication/follower_progress.py",
        "        self.end_offset = offset\n",
        "        self.end_offset = max(self.end_offset, offset)\n",
        Hunt.SCENARIOS,
    ),
    Mutant(
        61,
        "metadata that is known already ends a proposal",
        "replication/partition.py",
        "            if partition_epoch > self.partition_epoch:\n                self.leadership.assume(in_sync)",
        "            if partition_epoch >= self.partition_epoch:\n                self.leadership.assume(in_sync)",
        Hunt.SCENARIOS,
    ),
    Mutant(
        62,
        "an answer that newer metadata has overtaken is taken",
        "replication/partition.py",
        "if self.leadership is not None and partition_epoch > self.partition_epoch:",
        "if self.leadership is not None:",
        Hunt.SCENARIOS,
    ),
    Mutant(
        63,
        "whatever the controller says is a refusal",
        "broker/in_sync_changes.py",
        "            else:\n                again[partition] = proposal\n",
        "            else:\n                partition.in_sync_set_refused()\n",
        Hunt.SCENARIOS,
    ),
    Mutant(
        64,
        "a fetch of a former life counts",
        "broker/follower_fetch.py",
        "if follower is None or -1 < replica.replica_epoch < follower.broker_epoch:",
        "if follower is None:",
        Hunt.SCENARIOS,
    ),
    Mutant(
        65,
        "a fetch of another leader epoch counts",
        "broker/follower_fetch.py",
        "        if partition.check_leader_epoch(wish.current_leader_epoch) is not ErrorCode.NONE:\n"
        "            continue\n",
        "",
        Hunt.SCENARIOS,
    ),
    Mutant(
        66,
        "readers of what is committed read to the end of the log",
        "replication/partition.py",
        "return self.log.last_stable_offset(self.high_watermark)",
        "return self.log.last_stable_offset(self.log.end_offset)",
        faults=LEADERSHIP_MOVES,
    ),
    Mutant(
        67,
        "ListOffsets tells the end of the log",
        "broker/handlers/list_offsets.py",
        "        end_offset = partition.last_stable_offset if is_committed else partition.high_watermark\n",
        "        end_offset = partition.last_stable_offset if is_committed else log.end_offset\n",
        faults=LEADERSHIP_MOVES,
    ),
    Mutant(
        68,
        "leader epochs are never written down",
        "storage/log.py",
        "checkpoint = (self.epochs.path, self.epochs.encode()) if self.epochs.is_dirty else None",
        "checkpoint = None",
        faults=POWER,
        flushes=True,
        shape=(("small_segments", True),),
    ),
    Mutant(
        69,
        "a new segment is not in its directory",
        "storage/log.py",
        "        self.snapshots.write(self.producers)\n        self._directory_is_dirty = True\n        segment",
        "        self.snapshots.write(self.producers)\n        segment",
        faults=POWER,
        flushes=True,
        shape=(("small_segments", True),),
    ),
    Mutant(
        70,
        "that more is committed is no news to a follower",
        "replication/fetch_session.py",
        "            or data.high_watermark != self.high_watermark\n",
        "",
        Hunt.SCENARIOS,
    ),
    Mutant(
        71,
        "a batch with a gap before it is taken",
        "storage/producer_state.py",
        "if first_sequence == (entry.last_sequence + 1) & SEQUENCE_MAX:",
        "if first_sequence > entry.last_sequence:",
        Hunt.SCENARIOS,
    ),
    Mutant(
        72,
        "only the last batch is known when it comes again",
        "storage/producer_state.py",
        "            for batch in self.batches:\n",
        "            for batch in self.batches[-1:]:\n",
        Hunt.SCENARIOS,
    ),
    Mutant(
        73,
        "a restart forgets all but the last batch",
        "storage/log_loading.py",
        "        remember_repeats(earlier or segments, producers)\n",
        "",
        Hunt.SCENARIOS,
    ),
    Mutant(
        74,
        "a batch of a former epoch of its producer is taken",
        "storage/producer_state.py",
        "        if epoch < entry.producer_epoch:\n            return ErrorCode.INVALID_PRODUCER_EPOCH\n",
        "",
        Hunt.SCENARIOS,
    ),
    Mutant(
        75,
        "producer snapshots outlive what they were taken of",
        "storage/log_truncation.py",
        "    log.snapshots.remove_after(log.end_offset)\n",
        "",
        Hunt.SCENARIOS,
    ),
    Mutant(
        76,
        "what comes after a truncation counts as synced",
        "storage/log.py",
        "        self.synced_end_offset = min(self.synced_end_offset, self.end_offset)\n        self._directory",
        "        self._directory",
        Hunt.SCENARIOS,
    ),
    Mutant(
        77,
        "a truncation leaves the places of cut batches remembered",
        "storage/log.py",
        "        self.boundaries.clear()\n        self._flush_end",
        "        self._flush_end",
        Hunt.SCENARIOS,
    ),
    Mutant(
        78,
        "a follower keeps what was deleted",
        "replication/partition.py",
        "            if log_start_offset > self.log.log_start_offset:\n"
        "                self.log.advance_log_start(min(log_start_offset, self.log.end_offset), self.log.end_offset)\n",
        "",
        Hunt.SCENARIOS,
    ),
    Mutant(
        79,
        "an epoch is not noted before its first record",
        "replication/partition.py",
        "            self.log.epochs.assign(leader_epoch, self.log.end_offset)\n",
        "",
        Hunt.SCENARIOS,
    ),
    Mutant(
        80,
        "what a diverging follower did not take counts as told",
        "replication/fetch_session.py",
        "data.high_watermark if data.diverging_epoch is None else -1",
        "data.high_watermark",
        Hunt.SCENARIOS,
    ),
    Mutant(
        81,
        "what came in the epoch before counts as told",
        "replication/fetch_session.py",
        "                if wish.current_leader_epoch != cached.wish.current_leader_epoch:\n",
        "                if False:\n",
        Hunt.SCENARIOS,
    ),
    Mutant(
        82,
        "a heartbeat of a former generation is taken",
        "coordinator/heartbeat.py",
        "    if request.generation_id != group.generation:\n        return ErrorCode.ILLEGAL_GENERATION\n",
        "",
        faults=(Fault.KILL_COORDINATOR, Fault.PAUSE, Fault.ISOLATE_LEADER),
        shape=(("members", 3),),
    ),
    Mutant(
        83,
        "a sync of a former generation is taken",
        "coordinator/sync.py",
        "    if request.generation_id != group.generation:\n        return ErrorCode.ILLEGAL_GENERATION\n",
        "",
        faults=(Fault.KILL_COORDINATOR, Fault.PAUSE, Fault.ISOLATE_LEADER),
        shape=(("members", 3),),
    ),
    Mutant(
        84,
        "a commit of nobody into a group with members",
        "coordinator/offset_commit.py",
        "if generation < 0 and group.state is EMPTY:",
        "if generation < 0:",
        faults=(Fault.KILL_COORDINATOR, Fault.PAUSE, Fault.ISOLATE_LEADER),
        shape=(("members", 3),),
    ),
)
