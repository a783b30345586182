"""What one seed makes of a run: the cluster, its clients, and which kinds of faults there are at all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from random import Random

from moldau.kraft.features import ELIGIBLE_LEADER_REPLICAS
from tests.support.security.token_holder import TOKEN_PROPERTIES


class Fault(Enum):
    """What may strike. `POWER_CUT_ALL` only if every acknowledgement is flushed: else nothing is promised."""

    POWER_CUT = "power cut"
    POWER_CUT_ALL = "power cut of all"
    CUT_AT_STEP = "power cut at a step of the disk"
    KILL = "kill"
    KILL_LEADER = "kill a leader"
    KILL_CONTROLLER = "kill the controller"
    KILL_COORDINATOR = "kill a coordinator"
    KILL_ALL = "kill all"
    STOP = "clean restart"
    ROLL = "rolling restart"
    PAUSE = "pause"
    PAUSE_LEADER = "pause a leader"
    ISOLATE = "isolate a node"
    ISOLATE_LEADER = "isolate a leader"
    ISOLATE_CONTROLLER = "isolate the controller"
    CUT_ONE_WAY = "cut one way"
    SLOW_LINK = "slow link"
    RESET = "reset connections"
    STALL_LINK = "stall a link"
    SLOW_DISK = "slow disk"
    STALL_DISK = "stalled disk"
    DISK_ERROR = "disk error"
    FULL_DISK = "full disk"
    WALL_JUMP = "jump of the wall clock"
    MOVE_LEADERS = "move leaders"
    REASSIGN = "reassign a partition"
    CHANGE_VOTERS = "change the voters"
    BIT_ROT = "bit rot with good copies elsewhere"
    LOSE_DIRECTORY = "a log directory fails"
    KILL_TRANSACTION_COORDINATOR = "kill a transaction coordinator"
    MOVE_TRANSACTION_VERSION = "another transaction.version"
    STORAGE_ERRORS = "remote storage refuses, cuts, and loses answers"
    STORAGE_SLOW = "slow remote storage"
    STORAGE_AWAY = "remote storage is away"
    STORAGE_EXPIRED = "credentials of remote storage expire"
    STORAGE_FULL = "remote storage is full"
    STORAGE_LAG = "lists of remote storage lag"
    SWITCH_COPIES = "copies switched off and on"


STORAGE_FAULTS = (
    Fault.STORAGE_ERRORS,
    Fault.STORAGE_SLOW,
    Fault.STORAGE_AWAY,
    Fault.STORAGE_EXPIRED,
    Fault.STORAGE_FULL,
    Fault.STORAGE_LAG,
    Fault.SWITCH_COPIES,
)
"""Only if topics are tiered."""

DRAWN_ALONE = (
    Fault.BIT_ROT,
    Fault.LOSE_DIRECTORY,
    Fault.KILL_TRANSACTION_COORDINATOR,
    Fault.MOVE_TRANSACTION_VERSION,
    Fault.PAUSE_LEADER,
    *STORAGE_FAULTS,
)
"""Added to what is drawn of the others, whose draws it leaves as they are."""
ALWAYS_SAFE = tuple(fault for fault in Fault if fault not in (Fault.POWER_CUT_ALL, *DRAWN_ALONE))
TRANSACTIONAL_SHARE = 0.3
"""Of the seeds whose wall clocks agree to this:"""
AGREEING_MS = 500
COMPACTED_SHARE = 0.4
"""Of the seeds."""
TIERED_SHARE = 0.3
"""Of the seeds."""
SECURITY_SHARE = 0.4
"""Of the seeds."""
TIERED_TABLE_SHARE = 0.7
"""Of the seeds with a compacted topic and tiered ones: the compacted topic is tiered as well."""
TABLE_RETENTION = {
    "": {"retention.ms": "-1"},
    "bytes": {"retention.bytes": "4000", "retention.ms": "-1"},
    "time": {"retention.ms": "4000", "message.timestamp.type": "LogAppendTime"},
}
VOTERS = 3
"""At first."""
DIRECTORIES = ("/data", "/more")
TIERED_PROPERTIES = {
    "remote.log.storage.system.enable": "true",
    "moldau.tiered.storage": "s3://bucket/prefix",
    "remote.log.manager.task.interval.ms": "500",
    "remote.log.manager.task.retry.backoff.ms": "200",
    "remote.log.manager.task.retry.backoff.max.ms": "2000",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
    "rlmm.config.remote.log.metadata.topic.replication.factor": "3",
    "log.initial.task.delay.ms": "500",
    "log.retention.check.interval.ms": "300",
    "log.segment.delete.delay.ms": "200",
}
SECURITY_PROPERTIES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    **TOKEN_PROPERTIES,
}
"""The nodes and most clients are anonymous, and super users."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Drawn once; equal seeds have equal plans."""

    flushes: bool
    partitions: int
    producers: int
    in_flight: int
    batch_records_max: int
    pause_s: float
    timeout_ms: int
    faults: tuple[Fault, ...]
    strike_every_s: float
    fault_s: float
    look_every_s: float
    lag_ms_max: int
    session_ms: int
    rate_ppm_max: int
    skew_ms_max: int
    churns_topics: bool
    small_segments: bool
    nodes: int = 3
    """The fourth, if there is one, has replicas and no vote at first."""
    has_eligible_replicas: bool = False
    """KIP-966 is on."""
    names_voters: bool = False
    """The metadata log does, and the voters may change; else the configuration."""
    small_snapshots: bool = False
    """Snapshots of the metadata every few records, and little of its log is kept."""
    trims: bool = False
    """Records are deleted at the beginning of the logs."""
    members: int = 0
    """Of a classic group."""
    heartbeat_members: int = 0
    """Of a consumer group (KIP-848) and of a share group each."""
    properties: tuple[tuple[str, str], ...] = ()
    directories: int = 1
    """Of each broker; the metadata is in the first."""
    controllers: int = 0
    """So many nodes more, which are controllers only: the others are brokers only then."""
    administrators: int = 1
    """Of topics that come and go."""
    retains: str = ""
    """By what the topic is retained of which nobody reads: "bytes", "time", or not at all if there is none."""
    careless: int = 0
    """Producers that ask for the acknowledgement of the leader alone."""
    mixed: int = 0
    """Producers whose requests hold small and large batches, under acks=all."""
    loop_records_max: int = 50_000
    """Of a batch that is examined on the loop of its broker; others are examined beside it."""
    partitions_at_once_max: int = 10
    """So many are made or deleted if the metadata is followed; more become jobs."""
    churn_pause_s: float = 0.8
    """Between two of their acts, at the most."""
    transactional: int = 0
    """Transactional ids of each protocol. Only if wall clocks agree: they tell when a transaction times out."""
    transforms: bool = False
    """What is written in transactions is read, and written elsewhere, in transactions with the offsets."""
    table_keys: int = 0
    """Of each partition of a compacted topic, if there is one; the internal topics are compacted as eagerly then."""
    tombstones_ms: int = 1000
    """How long deletions of keys are kept."""
    is_tiered: bool = False
    """Topics have remote storage, small segments, and keep little on their disks."""
    tiered_segment_bytes: int = 1000
    local_retention_bytes: int = 1000
    table_policy: str = ""
    """`cleanup.policy` of the compacted topic if it is tiered as well; "": it is not."""
    table_retains: str = ""
    """By what the tiered compacted topic is retained if "delete" is in its policy: "bytes", "time", or not at all.
    """
    pass_bytes: int = 1 << 30
    """At most so many bytes of remote segments are cleaned in one pass."""
    changes_security: bool = False
    """There is an authorizer, and administrators change ACLs, users, quotas and delegation tokens."""
    security_pause_s: float = 0.4
    """Between two requests of each client with few permissions, at the most."""

    @classmethod
    def drawn(cls, random: Random) -> Plan:
        flushes = random.random() < 0.4
        kinds = [each for each in Fault if each not in DRAWN_ALONE] if flushes else list(ALWAYS_SAFE)
        faults = tuple(random.sample(kinds, random.randint(1, min(6, len(kinds)))))
        moves = {Fault.REASSIGN, Fault.CHANGE_VOTERS} & {*faults}
        plan = cls(
            flushes=flushes,
            partitions=random.randint(1, 3),
            producers=random.randint(1, 2),
            in_flight=random.choice((1, 2, 5, 5)),
            batch_records_max=random.randint(1, 4),
            pause_s=random.choice((0.05, 0.1, 0.3)),
            timeout_ms=random.choice((200, 1000, 3000)),
            faults=faults,
            strike_every_s=random.choice((0.5, 1.0, 2.0, 4.0)),
            fault_s=random.choice((10.0, 20.0, 40.0)),
            look_every_s=random.choice((0.008, 0.03, 0.08)),
            lag_ms_max=random.choice((1000, 3000, 10000)),
            session_ms=random.choice((2000, 3000, 9000)),
            rate_ppm_max=random.choice((0, 500, 20000)),
            skew_ms_max=random.choice((0, 500, 1_000_000)),
            churns_topics=random.random() < 0.4,
            small_segments=random.random() < 0.4,
            nodes=4 if moves and random.random() < 0.8 else 3,
            has_eligible_replicas=random.random() < 0.5,
            names_voters=Fault.CHANGE_VOTERS in faults or random.random() < 0.2,
            small_snapshots=random.random() < 0.4,
            trims=random.random() < 0.3,
            members=random.choice((0, 0, 2, 3)),
        )
        rots = random.random() < 0.25 and Fault.REASSIGN not in faults  # a move could leave the rotten copy alone
        faults += (Fault.BIT_ROT,) * rots
        if random.random() < 0.2:
            plan = replace(plan, directories=2)
            faults += (Fault.LOSE_DIRECTORY,)
        if random.random() < 0.1 and not plan.names_voters:
            plan = replace(plan, controllers=VOTERS)
        return plan.with_more(faults, Random(f"{random.random()}/more"))

    def with_more(self, faults: tuple[Fault, ...], random: Random) -> Plan:
        """What is drawn last, so that it leaves all else as it is."""
        plan = replace(
            self,
            faults=faults,
            retains=random.choice(("", "", "", "bytes", "time")),
            careless=random.choice((0, 0, 1)),
            loop_records_max=random.choice((50_000, 50_000, 50_000, 2)),
            partitions_at_once_max=random.choice((10, 10, 0, 1)),
            properties=random.choice(((), (), (), (("replica.fetch.max.bytes", "400"),))),
            mixed=random.choice((0, 0, 1)),
        )
        if random.random() < TRANSACTIONAL_SHARE and plan.skew_ms_max <= AGREEING_MS:
            faults = (*plan.faults, Fault.KILL_TRANSACTION_COORDINATOR)
            plan = replace(plan, transactional=1, transforms=random.random() < 0.5)
            faults += (Fault.MOVE_TRANSACTION_VERSION,) * (random.random() < 0.5)
            plan = replace(plan, faults=faults)
        if random.random() < COMPACTED_SHARE:
            plan = replace(
                plan, table_keys=random.choice((2, 5, 20)), tombstones_ms=random.choice((300, 3000, 300_000))
            )
        if random.random() < TIERED_SHARE:
            faults = (*plan.faults, *random.sample(STORAGE_FAULTS, random.randint(1, 4)))
            plan = replace(
                plan,
                faults=faults,
                is_tiered=True,
                tiered_segment_bytes=random.choice((600, 1000, 2000)),
                local_retention_bytes=random.choice((1, 1000, 4000)),
            )
        if Random(f"{random.random()}/security").random() < SECURITY_SHARE:
            plan = replace(plan, changes_security=True)
        return plan.with_tiered_table(Random(f"{random.random()}/tiered table"))

    def with_tiered_table(self, random: Random) -> Plan:
        if not (self.is_tiered and self.table_keys and random.random() < TIERED_TABLE_SHARE):
            return self
        policy = random.choice(("compact", "compact,delete"))
        is_deleted = policy != "compact" and not self.transactional
        return replace(
            self,
            table_policy=policy,
            table_retains=random.choice(("", "bytes", "time")) if is_deleted else "",
            pass_bytes=random.choice((1000, 1 << 30)),
        )

    def broker_properties(self) -> dict[str, str]:
        """For every node."""
        given = {
            "min.insync.replicas": "2",
            "default.replication.factor": "3",
            "replica.lag.time.max.ms": str(self.lag_ms_max),
            "broker.session.timeout.ms": str(self.session_ms),
            "broker.heartbeat.interval.ms": str(self.session_ms // 4),
            "log.retention.ms": "-1",
        }
        if self.heartbeat_members:
            given["share.coordinator.state.topic.num.partitions"] = "1"
            given["group.share.record.lock.duration.ms"] = "15000"
        if self.small_snapshots:
            given["metadata.log.max.record.bytes.between.snapshots"] = "600"
            given["metadata.max.retention.bytes"] = "4000"
        if self.trims or self.retains:
            given["log.initial.task.delay.ms"] = "500"
            given["log.retention.check.interval.ms"] = "300" if self.retains else "1000"
            given["log.segment.delete.delay.ms"] = "200"
        if self.directories > 1:
            given["log.dirs"] = ",".join(DIRECTORIES[: self.directories])
        if self.transactional:
            given["transaction.state.log.num.partitions"] = "3"
            given["transaction.abort.timed.out.transaction.cleanup.interval.ms"] = "500"
        if self.table_keys:
            given["log.cleaner.backoff.ms"] = "300"
            given["log.cleaner.dedupe.buffer.size"] = "24000"
            given["log.cleaner.min.cleanable.ratio"] = "0.01"
            given["log.cleaner.delete.retention.ms"] = str(self.tombstones_ms)
            given["log.segment.delete.delay.ms"] = "200"
            given["log.roll.ms"] = "500"
        if self.table_policy:
            given["moldau.tiered.superseded.retention.ms"] = "2000"
            given["moldau.tiered.compaction.bytes.per.pass"] = str(self.pass_bytes)
        if self.flushes:
            given["log.flush.interval.messages"] = "1"
        if self.changes_security:
            given |= SECURITY_PROPERTIES
        return given | (TIERED_PROPERTIES if self.is_tiered else {}) | dict(self.properties)

    def features(self) -> dict[str, int]:
        return {ELIGIBLE_LEADER_REPLICAS: int(self.has_eligible_replicas)}

    def retained_configs(self) -> dict[str, str]:
        """Of the topic that is retained, in small segments."""
        limit = {"retention.bytes": "1000", "retention.ms": "-1"}
        if self.retains == "time":
            limit = {"retention.ms": "1000", "message.timestamp.type": "LogAppendTime"}
        if self.is_tiered:
            limit = {name: f"{8 * int(value)}" if value == "1000" else value for name, value in limit.items()}
            limit |= self.tiered_configs()
        return {"internal.segment.bytes": "1000", "min.insync.replicas": "1", **limit}

    def tiered_configs(self) -> dict[str, str]:
        """Of a topic with remote storage."""
        return {
            "remote.storage.enable": "true",
            "internal.segment.bytes": str(self.tiered_segment_bytes),
            "local.retention.bytes": str(self.local_retention_bytes),
        }

    def table_configs(self) -> dict[str, str]:
        """Of the compacted topic. With transactions, a follower that lags must not miss the marker of a transaction of
        which it has records: as in Apache Kafka, it may be away for no longer than delete.retention.ms."""
        given = {"internal.segment.bytes": "1000", "cleanup.policy": "compact"}
        given |= {"delete.retention.ms": "300000"} if self.transactional else {}
        if self.table_policy:
            given |= self.tiered_configs() | {"cleanup.policy": self.table_policy} | TABLE_RETENTION[self.table_retains]
        return given

    def topic_configs(self) -> dict[str, str]:
        given = {"retention.ms": "-1"} | ({"internal.segment.bytes": "2000"} if self.small_segments else {})
        return given | (self.tiered_configs() if self.is_tiered else {})


def harsh(seed: int) -> Plan:
    """What the seed draws, with two to five more kinds of fault, strikes every two seconds at most, and rot mostly."""
    plan, random = Plan.drawn(Random(f"{seed}/plan")), Random(f"{seed}/harsh")
    kinds = [each for each in Fault if each not in DRAWN_ALONE] if plan.flushes else list(ALWAYS_SAFE)
    others = [each for each in kinds if each not in plan.faults]
    faults = [each for each in plan.faults if each is not Fault.BIT_ROT] + random.sample(others, random.randint(2, 5))
    if random.random() < 0.7:  # a move could leave the rotten copy alone
        faults = [*(each for each in faults if each is not Fault.REASSIGN), Fault.BIT_ROT]
    moves = {Fault.REASSIGN, Fault.CHANGE_VOTERS} & {*faults}
    return replace(
        plan,
        faults=tuple(faults),
        strike_every_s=random.choice((0.5, 1.0, 2.0)),
        fault_s=random.choice((20.0, 40.0)),
        nodes=4 if moves and random.random() < 0.8 else plan.nodes,
        names_voters=plan.names_voters or Fault.CHANGE_VOTERS in faults,
    )
