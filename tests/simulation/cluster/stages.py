"""What `make sim` runs, in its order, as data: first what finds most in a second, then the ordinary swarm for as long
as is asked.

Every run has a name, `kind/number`, that replays it: `make sim SEED=leaders/3`. A number alone is a seed of the swarm.
"""

from __future__ import annotations

import contextlib
import io
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, NamedTuple

from tests.simulation import power_loss
from tests.simulation.backups.swarm import Swarm as BackupsAlone
from tests.simulation.cluster import histories, names, regressions, scenarios, sessions, turns, waiting
from tests.simulation.cluster.eager import FAMILIES, Family, eager_plan
from tests.simulation.cluster.plan import Plan, harsh
from tests.simulation.cluster.swarm import run_seed
from tests.simulation.compaction.swarm import Swarm as LogCleanerAlone
from tests.simulation.controller.swarm import Swarm as ControllerAlone
from tests.simulation.erasure.remote_swarm import Swarm as RemoteEraserAlone
from tests.simulation.erasure.swarm import Swarm as LogEraserAlone
from tests.simulation.groups.consumer_swarm import ConsumerSwarm
from tests.simulation.groups.conversion_swarm import ConversionSwarm
from tests.simulation.groups.heartbeat_swarm import HeartbeatSwarm
from tests.simulation.groups.share_swarm import ShareSwarm
from tests.simulation.groups.streams_swarm import StreamsSwarm
from tests.simulation.groups.swarm import Swarm as Groups
from tests.simulation.metadata.swarm import Swarm as Metadata
from tests.simulation.quotas.swarm import Swarm as Quotas
from tests.simulation.raft import stories
from tests.simulation.raft.swarm import Swarm as Quorum
from tests.simulation.replicas.swarm import Swarm as Replicas
from tests.simulation.share_records.swarm import ShareRecordsSwarm
from tests.simulation.tiering import compacted, disabled, moved, rotten, scripts
from tests.simulation.transactions.swarm import Swarm as Transactions

Lines = list[str] | None
"""Where a replay's trace goes."""


@dataclass(slots=True)
class Report:
    """What one run came to."""

    simulated_s: float = 0.0
    """Of a whole cluster."""
    acknowledged: int = 0
    looks: int = 0
    problems: list[str] = field(default_factory=list)
    told: str = ""
    """To whoever replays it."""


Runner = Callable[[int, Lines], Report]
"""Raises what breaks at once; what was found at the end is in the report."""


class Run(NamedTuple):
    """One, by its name."""

    kind: str
    number: int

    @property
    def name(self) -> str:
        return f"{self.number}" if self.kind == SWARM else f"{self.kind}/{self.number}"


class Stage(NamedTuple):
    kinds: tuple[str, ...]
    """Each in turn."""
    times: int = 1
    """Runs of each kind: their numbers go on where the last stage of that kind ended."""
    at_once: int = 1
    """So many to a process: less than two seconds' worth."""


def of_cluster(plan_of: Callable[[int], Plan]) -> Runner:
    def run(seed: int, lines: Lines) -> Report:
        plan = plan_of(seed)
        try:
            done = run_seed(seed, plan=plan, lines=lines)
        except BaseException as error:
            error.add_note(f"{plan}")
            raise
        told = f"{done.plan}\nstruck: {done.struck}\ntransactions: {done.ledger.counts()}"
        told += f"\n{done.simulated_s:.1f} s, {done.looks} looks, digest {done.digest}"
        return Report(done.simulated_s, done.history.acknowledged_count, done.looks, done.problems(), told)

    return run


def of_family(family: Family) -> Runner:
    return of_cluster(lambda seed: eager_plan(seed, family.faults, family.shape))


def of_script(script: Callable[[int], None]) -> Runner:
    def run(seed: int, lines: Lines) -> Report:
        script(seed)
        return Report()

    return run


def of_quorum(seed: int, lines: Lines) -> Report:
    """The quorum's state machines alone, on virtual time."""
    quorum = Quorum(seed)
    quorum.world.trace = lines
    quorum.run()
    return Report(told=quorum.world.states())


def of_replicas(seed: int, lines: Lines) -> Report:
    """The replicas of one partition, without a network between them."""
    replicas = Replicas(seed)
    replicas.run()
    return Report(told=f"{len(replicas.acknowledged)} acknowledged")


def of_metadata(seed: int, lines: Lines) -> Report:
    """The quorum's nodes with their logs and disks, without partitions."""
    metadata = Metadata(seed, keep_trace=lines is not None)
    metadata.run(lines)
    return Report(problems=metadata.complaints, told=f"{metadata.plan.faults}\nstruck: {metadata.nemesis.struck}")


def of_controller(seed: int, lines: Lines) -> Report:
    """The controller alone, and what replicas hold."""
    swarm = ControllerAlone(seed)
    swarm.run()
    return Report(told=f"{swarm.offset} records in the log of term {swarm.epoch}")


def of_groups(seed: int, lines: Lines) -> Report:
    """A coordinator of groups alone, and its members."""
    groups = Groups(seed)
    groups.run()
    return Report(told=f"{len(groups.stage.log)} batches in the log of life {groups.stage.epoch}")


def of_heartbeats(swarm: Callable[[int], HeartbeatSwarm[Any] | ConversionSwarm]) -> Runner:
    """A coordinator of groups that heartbeats keep up, or that turn into such, and their members."""

    def run(seed: int, lines: Lines) -> Report:
        groups = swarm(seed)
        groups.run()
        return Report(told=f"{len(groups.stage.log)} batches in the log of life {groups.stage.epoch}")

    return run


def of_share_records(seed: int, lines: Lines) -> Report:
    """What a share group has in flight of a partition, and the share coordinator."""
    records = ShareRecordsSwarm(seed)
    records.run()
    return Report(told=f"{records.rules.delivered_count} deliveries, leader epoch {records.leader_epoch}")


def of_transactions(seed: int, lines: Lines) -> Report:
    """A coordinator of transactions alone, its producers, and the partitions that they write to."""
    transactions = Transactions(seed)
    transactions.run()
    return Report(told=f"{transactions.rules.endings} transactions, coordinator {transactions.stage.epoch}")


def of_log_cleaner(seed: int, lines: Lines) -> Report:
    """The log cleaner without a cluster, and the logs that it cleans."""
    alone = LogCleanerAlone(seed)
    alone.run()
    return Report(looks=alone.looks, told=f"{alone.shape}\n{alone.cleaned} rounds of cleaning")


def of_log_eraser(seed: int, lines: Lines) -> Report:
    """The log eraser without a cluster, and the logs from which it erases."""
    alone = LogEraserAlone(seed)
    alone.run()
    return Report(
        looks=alone.looks, told=f"{len(alone.model.orders)} erase orders of {len(alone.model.batches)} batches"
    )


def of_remote_eraser(seed: int, lines: Lines) -> Report:
    """The eraser of one partition in remote storage, and what copies it there, without a cluster."""
    alone = RemoteEraserAlone(seed)
    alone.run()
    return Report(looks=alone.looks, told=f"{len(alone.orders)} erase orders, {alone.terms} terms as the leader")


def of_backups(seed: int, lines: Lines) -> Report:
    """Backups of logs that grow, a restore and a capture of them."""
    alone = BackupsAlone(seed)
    alone.run()
    return Report(told=f"{alone.kills} runs were killed, {alone.restores} restores")


def of_quotas(seed: int, lines: Lines) -> Report:
    """The client quotas of a broker without a broker, for hours."""
    quotas = Quotas(seed)
    quotas.run()
    return Report(told=f"{quotas.throttled} of {quotas.requests} requests were throttled")


def of_sessions(seed: int, lines: Lines) -> Report:
    """Clients of one broker that log in, authenticate again, and outlive their sessions."""
    counts = sessions.run_seed(seed)
    return Report(told=f"{counts['renewals']} renewals, {counts['ends']} ends of sessions")


def of_waits(seed: int, lines: Lines) -> Report:
    """Consumers that wait for records of three replicas."""
    told = [each.answers for each in waiting.run_seed(seed).consumers]
    return Report(told=f"answers of each consumer: {told}")


def of_turns(seed: int, lines: Lines) -> Report:
    """Connections of one broker that ask for more than it has time for."""
    told = turns.run_seed(seed)
    return Report(told=f"{told}")


def of_one_node(seed: int, lines: Lines) -> Report:
    """A broker on its own whose power goes again and again."""
    done = power_loss.run_seed(seed)
    return Report(problems=done.problems(), told=f"{done.shape}\n{done.simulated_s:.1f} s, digest {done.digest}")


class _Failures:
    """What pytest tells as it goes."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def pytest_runtest_logreport(self, report: object) -> None:
        if getattr(report, "failed", False):
            self.problems.append(f"{getattr(report, 'nodeid', '')}: {str(getattr(report, 'longrepr', ''))[-1000:]}")


def of_stories(path: str) -> Runner:
    """A file of tests: clusters that are told what happens to them."""

    def run(seed: int, lines: Lines) -> Report:
        import pytest

        failures = _Failures()
        arguments = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:warnings", path]
        with contextlib.redirect_stdout(io.StringIO()) as said:
            code = pytest.main(arguments, plugins=[failures])
        return Report(problems=failures.problems or ([said.getvalue()] if code else []), told=said.getvalue())

    return run


SWARM: Final = "swarm"
HARSH: Final = "harsh"
QUORUM: Final = "quorum"
REPLICAS: Final = "replicas"
METADATA: Final = "metadata"
CONTROLLER: Final = "controller"
GROUPS: Final = "groups"
CONSUMER_GROUPS: Final = "consumer-groups"
SHARE_GROUPS: Final = "share-groups"
STREAMS_GROUPS: Final = "streams-groups"
CONVERSIONS: Final = "group-conversions"
SHARE_RECORDS: Final = "share-records"
HEARTBEATS: Final = (CONSUMER_GROUPS, SHARE_GROUPS, STREAMS_GROUPS)
"""The kinds of groups that heartbeats keep up: a seed takes about 0.03 s."""
TRANSACTIONS: Final = "transaction-coordinator"
LOG_CLEANER: Final = "log-cleaner"
LOG_ERASER: Final = "log-eraser"
REMOTE_ERASER: Final = "remote-eraser"
BACKUPS: Final = "backups"
QUOTAS: Final = "quotas"
SESSIONS: Final = "sessions"
WAITS: Final = "waits"
TURNS: Final = "turns"
ONE_NODE: Final = "one-node"
DISKS: Final = "disks"
"""A family of clusters: disks that refuse, stall or are full."""
DIRECTORIES: Final = "directories"
"""A family of clusters: several log directories, of which one fails."""
COPIES: Final = "copies"
"""A family of clusters: tiered topics."""
PERMISSIONS: Final = "permissions"
"""A family of clusters: an authorizer, and clients that log in."""
SCRIPTS: Final = (
    *scenarios.ALL,
    *stories.ALL,
    *regressions.ALL,
    *names.ALL,
    *histories.ALL,
    *scripts.ALL,
    *moved.ALL,
    *rotten.ALL,
    *compacted.ALL,
    *disabled.ALL,
)
FIRST_STORIES: Final = (
    *(f"tests/simulation/test_{name}.py" for name in ("deleted_records", "deletions", "transaction_index")),
    "tests/unit/kraft/controller/security/test_token_control.py",
    "tests/unit/tables/values/test_bounds.py",
    "tests/unit/storage/log/test_derived_files.py",
    "tests/unit/broker/metadata/test_active_controller.py",
    "tests/unit/broker/apis/groups/test_large_descriptions.py",
    "tests/unit/broker/metadata/test_other_brokers.py",
    "tests/unit/broker/faults/test_parts.py",
    "tests/unit/broker/replicas/test_roles_in_turns.py",
    "tests/unit/broker/console/test_search.py",
    "tests/unit/broker/exporter/test_bounds.py",
    "tests/unit/broker/exporter/test_exporter.py",
    "tests/unit/broker/reasons/test_histories.py",
    "tests/transcripts/test_kraft.py",
    *(
        f"tests/unit/backup/{name}.py"
        for name in (
            "test_cutting",
            "test_taking",
            "test_written_pieces",
            "test_keeping",
            "sources/test_directories",
            "test_settling",
            "test_restoring",
            "test_cluster_image",
            "test_captured_log",
            "test_capture_taking",
            "test_capture_commits",
        )
    ),
)
"""One second each, those of derived files, of the search, of the lag, of log directories and of settling five."""
EARLIEST_STORIES: Final = ("tests/simulation/erasure/test_passes.py", "tests/simulation/test_erasure.py")
"""Five seconds. The scripts, which come after them, take most of the first minute."""
STORIES: Final = tuple(
    f"tests/simulation/test_{name}.py"
    for name in (
        "cluster",
        "tiered_erasure",
        "group_failover",
        "dead_letters",
        "replica_reads",
        "bit_rot",
        "stopping_follower",
        "roles",
        "forwarding",
        "disk_stall",
        "first_fetches",
        "removed_leader",
        "unreadable_metadata",
        "access",
        "acls",
    )
)
REPLIES_OF_FILES: Final = "tests/unit/broker/network/test_direct_output.py"
LONG_STORIES: Final = (
    *(f"tests/simulation/{name}.py" for name in ("raft/test_scenarios", "test_metadata_quorum")),
    REPLIES_OF_FILES,
)
"""Five, ten and twenty seconds."""

KINDS: Final[dict[str, Runner]] = {
    SWARM: of_cluster(lambda seed: Plan.drawn(Random(f"{seed}/plan"))),
    HARSH: of_cluster(harsh),
    QUORUM: of_quorum,
    REPLICAS: of_replicas,
    METADATA: of_metadata,
    CONTROLLER: of_controller,
    GROUPS: of_groups,
    CONSUMER_GROUPS: of_heartbeats(ConsumerSwarm),
    SHARE_GROUPS: of_heartbeats(ShareSwarm),
    STREAMS_GROUPS: of_heartbeats(StreamsSwarm),
    CONVERSIONS: of_heartbeats(ConversionSwarm),
    SHARE_RECORDS: of_share_records,
    TRANSACTIONS: of_transactions,
    LOG_CLEANER: of_log_cleaner,
    LOG_ERASER: of_log_eraser,
    REMOTE_ERASER: of_remote_eraser,
    BACKUPS: of_backups,
    QUOTAS: of_quotas,
    SESSIONS: of_sessions,
    WAITS: of_waits,
    TURNS: of_turns,
    ONE_NODE: of_one_node,
    **{family.name: of_family(family) for family in FAMILIES},
    **{script.__name__: of_script(script) for script in SCRIPTS},
    **{path: of_stories(path) for path in (*EARLIEST_STORIES, *FIRST_STORIES, *STORIES, *LONG_STORIES)},
}

EAGER: Final = tuple(family.name for family in FAMILIES)
EAGEREST: Final = 6
"""So many families of faults come before everything else of clusters."""
OPENING: Final = (
    Stage((GROUPS, REPLICAS), 8, at_once=8),
    Stage((BACKUPS,), 12, at_once=12),
    Stage((REMOTE_ERASER,), 6, at_once=6),
    Stage((CONSUMER_GROUPS, STREAMS_GROUPS, CONVERSIONS), 20, at_once=20),
    Stage((SHARE_RECORDS,), 32, at_once=16),
    Stage((SHARE_GROUPS,), 48, at_once=24),
    Stage((TRANSACTIONS, LOG_CLEANER, LOG_ERASER), 8, at_once=8),
    Stage((LOG_ERASER,), 40, at_once=20),
    Stage(EARLIEST_STORIES),
    Stage((CONTROLLER,), 8, at_once=8),
    Stage((QUOTAS,), 2, at_once=2),
    Stage((SESSIONS, WAITS, TURNS), 2, at_once=4),
    Stage((QUORUM,), 60, at_once=20),
    Stage(tuple(script.__name__ for script in SCRIPTS), at_once=8),
    Stage((REPLICAS,), 12, at_once=12),
    Stage((BACKUPS, REMOTE_ERASER), 12, at_once=6),
    Stage(FIRST_STORIES),
    Stage((PERMISSIONS,)),
    Stage((METADATA,), 4, at_once=4),
    Stage((GROUPS,), 16, at_once=8),
    Stage((LOG_CLEANER,), 16, at_once=8),
    Stage((TRANSACTIONS,), 42, at_once=21),
    Stage((QUOTAS,), 6, at_once=6),
    Stage((DISKS, DIRECTORIES)),
    Stage((REPLICAS,), 16, at_once=8),
    Stage((ONE_NODE,), 8, at_once=8),
    Stage(EAGER[:EAGEREST]),
    Stage((METADATA,), 6, at_once=3),
    Stage((LOG_CLEANER, LOG_ERASER), 36, at_once=12),
    Stage((PERMISSIONS, COPIES), 2),
    Stage((REPLICAS,), 28, at_once=14),
    Stage((ONE_NODE,), 8, at_once=8),
    Stage(tuple(each for each in EAGER[EAGEREST:] if each not in (DISKS, DIRECTORIES))),
    Stage((LOG_CLEANER,), 40, at_once=20),
    Stage((CONTROLLER,), 28, at_once=7),
    Stage((GROUPS,), 40, at_once=20),
    Stage((*HEARTBEATS, CONVERSIONS, SHARE_RECORDS), 100, at_once=50),
    Stage((TRANSACTIONS,), 200, at_once=100),
    Stage((METADATA,), 10, at_once=5),
    Stage(STORIES, at_once=2),
    Stage((ONE_NODE,), 24, at_once=12),
    Stage((QUORUM, REPLICAS), 40, at_once=20),
    Stage((SESSIONS, WAITS, QUOTAS, TURNS), 8, at_once=8),
    Stage(EAGER),
    Stage(LONG_STORIES),
    Stage(EAGER),
)
"""Before the swarm. What is fast and has no cluster comes first: the scripts alone take most of a minute."""


def opening(first: int, stages: Sequence[Stage] = OPENING) -> Iterator[list[Run]]:
    """What one process runs at once, from these numbers on; scripts and stories are told once, as they are."""
    numbers: dict[str, Iterator[int]] = {}
    for stage in stages:
        runs = [
            Run(kind, next(numbers.setdefault(kind, itertools.count(first if is_drawn(kind) else 0))))
            for _ in range(stage.times)
            for kind in stage.kinds
        ]
        for begin in range(0, len(runs), stage.at_once):
            yield runs[begin : begin + stage.at_once]


def is_drawn(kind: str) -> bool:
    """Whether another number makes another run."""
    return kind in (
        SWARM,
        HARSH,
        QUORUM,
        CONTROLLER,
        GROUPS,
        *HEARTBEATS,
        CONVERSIONS,
        SHARE_RECORDS,
        TRANSACTIONS,
        REPLICAS,
        METADATA,
        LOG_CLEANER,
        LOG_ERASER,
        REMOTE_ERASER,
        BACKUPS,
        QUOTAS,
        SESSIONS,
        WAITS,
        TURNS,
        ONE_NODE,
        *EAGER,
    )


def swarm(first: int, harsh_every: int = 0) -> Iterator[list[Run]]:
    """Seeds of whole clusters without end, of which every so-manyth is harsh."""
    for seed in itertools.count(first):
        is_harsh = bool(harsh_every) and (seed - first) % harsh_every == harsh_every - 1
        yield [Run(HARSH if is_harsh else SWARM, seed)]


def named(name: str) -> Run:
    """Raises ValueError for what names nothing."""
    kind, _, number = name.rpartition("/")
    if name in KINDS:
        kind, number = name, "0"
    if not number.isdigit() or (kind and kind not in KINDS):
        raise ValueError(f"{name!r} is no run: a number, or one of {', '.join(KINDS)} with a number")
    return Run(kind or SWARM, int(number))
