"""What one seed makes of a run: the cluster, its clients, and which kinds of faults there are at all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from random import Random


class Fault(Enum):
    """What may strike. `POWER_CUT_ALL` only where every acknowledgement is flushed: else nothing is promised."""

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
    BIT_ROT = "bit rot with good copies elsewhere"


DRAWN_ALONE = (Fault.BIT_ROT,)
"""Added to what is drawn of the others, whose draws it leaves as they are."""
ALWAYS_SAFE = tuple(fault for fault in Fault if fault not in (Fault.POWER_CUT_ALL, *DRAWN_ALONE))


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
    properties: tuple[tuple[str, str], ...] = ()

    @classmethod
    def drawn(cls, random: Random) -> Plan:
        flushes = random.random() < 0.4
        kinds = [each for each in Fault if each not in DRAWN_ALONE] if flushes else list(ALWAYS_SAFE)
        faults = tuple(random.sample(kinds, random.randint(1, min(6, len(kinds)))))
        plan = cls(
            flushes=flushes,
            partitions=random.randint(1, 3),
            producers=random.randint(1, 2),
            in_flight=random.choice((1, 2, 5, 5)),
            batch_records_max=random.randint(1, 4),
            pause_s=random.choice((0.01, 0.03, 0.1)),
            timeout_ms=random.choice((200, 1000, 3000)),
            faults=faults,
            strike_every_s=random.choice((0.7, 2.0, 5.0)),
            fault_s=random.choice((15.0, 30.0, 45.0)),
            look_every_s=random.choice((0.004, 0.02, 0.05)),
            lag_ms_max=random.choice((1000, 3000, 10000)),
            session_ms=random.choice((2000, 3000, 9000)),
            rate_ppm_max=random.choice((0, 500, 20000)),
            skew_ms_max=random.choice((0, 500, 1_000_000)),
            churns_topics=random.random() < 0.4,
            small_segments=random.random() < 0.4,
        )
        return replace(plan, faults=(*faults, Fault.BIT_ROT)) if random.random() < 0.25 else plan

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
        if self.flushes:
            given["log.flush.interval.messages"] = "1"
        return given | dict(self.properties)

    def topic_configs(self) -> dict[str, str]:
        return {"retention.ms": "-1"} | ({"internal.segment.bytes": "2000"} if self.small_segments else {})
