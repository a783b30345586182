"""Short and eager clusters: one family of faults each, a strike every half second, a look every few milliseconds.

The ordinary swarm draws what strikes at all, so that a family of faults may wait for its seed for minutes. Here each
family has its own, with the shape of cluster in which it matters, and a seed takes two seconds of machine time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Final, NamedTuple

from tests.simulation.cluster.plan import STORAGE_FAULTS, Fault, Plan

Shape = tuple[tuple[str, object], ...]
"""Fields of a plan, and their values."""


SMALL_FETCHES: Final = ("properties", (("replica.fetch.max.bytes", "400"),))
"""A replica that is moved needs many of them."""


TRANSACTIONAL: Final[Shape] = (
    ("partitions", 1),
    ("producers", 1),
    ("members", 0),
    ("skew_ms_max", 0),
    ("churns_topics", False),
    ("retains", ""),
    ("trims", False),
    ("look_every_s", 0.03),
    ("strike_every_s", 1.2),
    ("fault_s", 10.0),
)
"""Little else goes on, and the cluster serves most of the time."""


SPARING: Final[Shape] = (
    ("partitions", 1),
    ("producers", 1),
    ("members", 1),
    ("skew_ms_max", 0),
    ("churns_topics", False),
    ("table_keys", 0),
    ("retains", ""),
    ("trims", False),
    ("fault_s", 5.0),
    ("look_every_s", 0.03),
    ("pause_s", 0.06),
)
"""A cluster that is hardly disturbed writes much, which takes time."""


TIERED: Final[Shape] = (
    ("is_tiered", True),
    ("tiered_segment_bytes", 1000),
    ("producers", 1),
    ("partitions", 1),
    ("members", 0),
    ("churns_topics", False),
    ("directories", 1),
    ("table_keys", 0),
    ("mixed", 0),
    ("careless", 0),
    ("look_every_s", 0.03),
    ("pause_s", 0.06),
)


class Family(NamedTuple):
    name: str
    faults: tuple[Fault, ...]
    shape: Shape = ()


FAMILIES: Final = (
    Family(
        "leaders",
        (Fault.KILL_LEADER, Fault.ISOLATE_LEADER, Fault.KILL, Fault.CUT_ONE_WAY),
        (("flushes", False), ("trims", False)),
    ),
    Family(
        "power",
        (Fault.POWER_CUT, Fault.CUT_AT_STEP, Fault.ISOLATE_LEADER),
        (("flushes", False), ("small_snapshots", True)),
    ),
    Family(
        "controllers",
        (Fault.KILL_CONTROLLER, Fault.ISOLATE_CONTROLLER, Fault.POWER_CUT, Fault.KILL),
        (("small_snapshots", True), ("has_eligible_replicas", True), ("churns_topics", True)),
    ),
    Family(
        "moves",
        (Fault.REASSIGN, Fault.MOVE_LEADERS, Fault.KILL),
        (("nodes", 4), ("flushes", False), SMALL_FETCHES),
    ),
    Family(
        "retention",
        (Fault.ISOLATE_LEADER, Fault.CUT_ONE_WAY, Fault.PAUSE, Fault.KILL_LEADER),
        (
            ("retains", "bytes"),
            ("careless", 1),
            ("mixed", 2),
            ("loop_records_max", 2),
            ("batch_records_max", 4),
            ("partitions", 1),
        ),
    ),
    Family(
        "names",
        (Fault.KILL, Fault.STOP, Fault.ISOLATE, Fault.POWER_CUT, Fault.PAUSE),
        (
            ("churns_topics", True),
            ("administrators", 3),
            ("churn_pause_s", 0.1),
            ("partitions_at_once_max", 0),
            ("small_snapshots", True),
            ("partitions", 1),
            ("producers", 1),
        ),
    ),
    Family(
        "permissions",
        (
            Fault.KILL_CONTROLLER,
            Fault.ISOLATE_CONTROLLER,
            Fault.PAUSE,
            Fault.SLOW_LINK,
            Fault.ISOLATE,
            Fault.KILL_LEADER,
        ),
        (
            ("changes_security", True),
            ("security_pause_s", 0.1),
            ("skew_ms_max", 0),
            ("partitions", 1),
            ("producers", 1),
            ("members", 0),
            ("mixed", 0),
            ("careless", 0),
            ("churns_topics", False),
            ("transactional", 0),
            ("table_keys", 0),
            ("is_tiered", False),
            ("retains", ""),
            ("look_every_s", 0.03),
        ),
    ),
    Family(
        "darkness",
        (Fault.POWER_CUT_ALL, Fault.KILL_LEADER, Fault.CUT_AT_STEP),
        (("flushes", True),),
    ),
    Family(
        "pauses",
        (Fault.PAUSE, Fault.CUT_ONE_WAY, Fault.ISOLATE),
        (("flushes", False), ("timeout_ms", 200), ("mixed", 2), ("loop_records_max", 2)),
    ),
    Family(
        "healthy",
        (),
        (("faults", ()), ("transactional", 1), *SPARING),
    ),
    Family(
        "paused-leaders",
        (Fault.PAUSE_LEADER, Fault.KILL_LEADER),
        (("flushes", False), ("timeout_ms", 200), ("transactional", 1), *SPARING),
    ),
    Family(
        "all-at-once",
        (Fault.KILL_ALL, Fault.KILL, Fault.KILL_LEADER, Fault.PAUSE),
        (("has_eligible_replicas", True),),
    ),
    Family(
        "coordinators",
        (Fault.KILL_COORDINATOR, Fault.MOVE_LEADERS, Fault.ISOLATE_LEADER),
        (("members", 3), ("partitions", 2), ("producers", 1)),
    ),
    Family(
        "heartbeats",
        (Fault.KILL_COORDINATOR, Fault.KILL_LEADER, Fault.ISOLATE_LEADER, Fault.MOVE_LEADERS),
        (
            ("heartbeat_members", 2),
            ("partitions", 2),
            ("producers", 1),
            ("members", 2),
            ("trims", False),
            ("retains", ""),
            ("transactional", 0),
            ("table_keys", 0),
            ("churns_topics", False),
            ("look_every_s", 0.03),
            ("pause_s", 0.06),
        ),
    ),
    Family(
        "disks",
        (Fault.DISK_ERROR, Fault.FULL_DISK, Fault.STALL_DISK, Fault.SLOW_DISK),
        (("small_segments", True),),
    ),
    Family(
        "directories",
        (Fault.LOSE_DIRECTORY, Fault.KILL, Fault.STOP, Fault.KILL_LEADER),
        (("directories", 2),),
    ),
    Family(
        "rot",
        (Fault.BIT_ROT, Fault.KILL, Fault.STOP),
        (("small_segments", True), ("flushes", True)),
    ),
    Family(
        "restarts",
        (Fault.STOP, Fault.ROLL, Fault.POWER_CUT),
        (("flushes", False),),
    ),
    Family(
        "roles",
        (Fault.KILL, Fault.KILL_CONTROLLER, Fault.KILL_LEADER, Fault.CUT_ONE_WAY, Fault.STOP),
        (("nodes", 3), ("controllers", 3), ("names_voters", False)),
    ),
    Family(
        "voters",
        (Fault.CHANGE_VOTERS, Fault.KILL_CONTROLLER, Fault.ISOLATE_CONTROLLER),
        (("nodes", 4), ("names_voters", True), ("small_snapshots", True)),
    ),
    Family(
        "trims",
        (Fault.KILL_LEADER, Fault.KILL, Fault.ISOLATE_LEADER),
        (("trims", True), ("small_segments", True)),
    ),
    Family(
        "transactions",
        (Fault.KILL_TRANSACTION_COORDINATOR, Fault.KILL_LEADER, Fault.ISOLATE, Fault.RESET, Fault.STALL_LINK),
        (("transactional", 2), *TRANSACTIONAL),
    ),
    Family(
        "effects",
        (
            Fault.KILL_TRANSACTION_COORDINATOR,
            Fault.KILL_COORDINATOR,
            Fault.ISOLATE_LEADER,
            Fault.STALL_LINK,
            Fault.MOVE_TRANSACTION_VERSION,
        ),
        (("transactional", 1), ("transforms", True), *TRANSACTIONAL),
    ),
    Family(
        "copies",
        (Fault.KILL_LEADER, Fault.ISOLATE_LEADER, Fault.MOVE_LEADERS, *STORAGE_FAULTS),
        (
            *TIERED,
            ("transactional", 1),
            ("transforms", False),
            ("retains", "bytes"),
            ("skew_ms_max", 0),
            ("trims", False),
            ("strike_every_s", 1.0),
        ),
    ),
    Family(
        "generations",
        (Fault.KILL_LEADER, Fault.ISOLATE_LEADER, Fault.MOVE_LEADERS, Fault.KILL, *STORAGE_FAULTS),
        (
            *TIERED,
            ("table_keys", 5),
            ("table_policy", "compact,delete"),
            ("tombstones_ms", 300),
            ("transactional", 0),
            ("transforms", False),
            ("retains", ""),
            ("trims", False),
            ("strike_every_s", 1.0),
        ),
    ),
    Family(
        "links",
        (Fault.RESET, Fault.STALL_LINK, Fault.SLOW_LINK, Fault.WALL_JUMP),
        (("timeout_ms", 200), ("members", 2), ("skew_ms_max", 1_000_000)),
    ),
)


def eager_plan(seed: int, faults: Sequence[Fault] = (), shape: Shape = ()) -> Plan:
    """What the seed draws, made short, with these faults if there are any."""
    drawn = Plan.drawn(Random(f"{seed}/plan"))
    plan = replace(
        drawn,
        faults=tuple(faults) or drawn.faults,
        fault_s=8.0,
        strike_every_s=0.6,
        look_every_s=0.008,
        session_ms=2000,
        lag_ms_max=1000,
        pause_s=0.02,
        in_flight=5,
        partitions=min(drawn.partitions, 2),
        churn_pause_s=0.2,
        is_tiered=False,  # Such a run takes longer; families of their own have it.
        table_policy="",
        table_retains="",
    )
    plan = replace(plan, **dict(shape))  # type: ignore[arg-type]
    if Fault.POWER_CUT_ALL in plan.faults and not plan.flushes:
        plan = replace(plan, faults=tuple(each for each in plan.faults if each is not Fault.POWER_CUT_ALL))
    return plan
