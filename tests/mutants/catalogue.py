"""The planted bugs: each a replacement of text in one file. The product knows nothing of them.

Numbers 1 to 22 are the list that the simulator was asked to kill; those after it were found by it.
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
        "        take_note(log, header, header.base_offset, header.partition_leader_epoch, marker)\n",
        "        take_note(log, header, header.base_offset, header.partition_leader_epoch, marker)\n"
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
)
