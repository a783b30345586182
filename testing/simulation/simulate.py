"""`simulate`: runs a cluster and applications built on aiokafka in one process, in virtual time, under faults that a
seed chooses.

    async def main(kafka):
        await kafka.create_topic("orders")
        worker = kafka.start(consume, "worker")
        await kafka.trouble(60)
        ...
        assert processed == produced

    simulate(main, seed=7)

The nodes are whole brokers; the event loop, the network, the disks and the clocks are simulated. A minute passes in a
fraction of a second, and a seed that fails fails again. aiokafka is the installed one. An application must not start
threads or processes, open sockets or files, or wait in any other way than on its event loop: such a call raises
`RealityTouched`. Clocks and generators of the modules `time` and `random` are virtual, except if an application bound
them by `from time import time`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from random import Random
from typing import Any, Final, NamedTuple

from moldau.broker.config.loading import checked_config
from moldau.broker.metadata.registration import RegistrationRefused
from moldau.broker.metadata.storage_format import format_directories
from moldau.broker.node.node import Node
from moldau.storage.checkpoints.meta_properties import read_meta_properties
from moldau.storage.log.recovery import CorruptLog
from moldau.testing.simulation.world import Host, SimulatedEnvironment, World

PORT: Final = 9092
CONTROLLER_PORT: Final = 9093
DATA: Final = "/data"
CLUSTER_ID: Final = "simulated-cluster-0000"
LIMIT_S: Final = 3600.0
START_S: Final = 60.0
TOPIC_EXISTS: Final = 36
"""The error code for a topic that exists already: an earlier request created it, but its answer was lost."""
TROUBLES: Final = ("kill node", "crash node", "pause node", "cut", "kill application", "pause application")
TROUBLE_PAUSE_S: Final = (0.2, 6.0)
"""The range (seconds) from which the pause before each fault and the duration of each fault are drawn."""

Main = Callable[["Simulation"], Awaitable[Any]]
"""The story of a simulation: the coroutine function of the test. No fault ends it."""
Application = Callable[["Simulation"], Coroutine[Any, Any, object]]
"""The main function of an application's process, which may be killed. Each start of the process calls it again."""


class Outcome(NamedTuple):
    """The result of a simulation."""

    value: Any
    """What the story returned."""
    digest: str
    """A digest of the run. Equal runs have equal digests: the same seed, story, versions and Python."""
    simulated_s: float
    seconds: float
    """The duration of the run in real time (seconds)."""


class Process:
    """An application or a node on a host of its own. When it ends, what it has in memory is lost."""

    def __init__(self, host: Host, main: Callable[[SimulatedEnvironment], Any]) -> None:
        self.name: Final = host.name
        self._host = host
        self._main = main

    @property
    def is_running(self) -> bool:
        return self._host.is_up

    def start(self) -> None:
        """Start the process if it does not run."""
        if not self._host.is_up:
            self._host.boot(self._main)

    def kill(self) -> None:
        """End the process at once, as `kill -9` does: its connections are closed, its files are kept."""
        self._host.kill()

    def crash(self) -> None:
        """Cut the power of the host: what was not synced is lost, and its peers may not notice."""
        self._host.crash()

    def pause(self) -> None:
        """Suspend the process; its connections stay open."""
        self._host.pause()

    def resume(self) -> None:
        self._host.resume()

    def restart(self) -> None:
        """Kill the process if it runs, and start it."""
        if self._host.is_up:
            self._host.kill()
        self.start()


class SimulationError(AssertionError):
    """Raised if the simulated cluster did not do what a story needs, such as creating a topic in time."""


class Simulation:
    """A simulated cluster, as its story and its applications use it."""

    def __init__(self, world: World, nodes: int, settings: Mapping[str, object]) -> None:
        self._world = world
        self.random: Final = Random(f"{world.seed}/story")
        """The random generator for the choices of the story. Its seed comes from that of the simulation."""
        self.nodes: Final[list[Process]] = []
        self.applications: Final[list[Process]] = []
        names = [f"broker-{number}" for number in range(1, nodes + 1)]
        self.bootstrap_servers: Final = ",".join(f"{name}:{PORT}" for name in names)
        for number, name in enumerate(names, 1):
            host = world.add_host(name)
            host.may_halt = True
            properties = node_properties(number, names) | {key: str(value) for key, value in settings.items()}
            self.nodes.append(Process(host, partial(serve, properties)))

    @property
    def now_s(self) -> float:
        """The virtual time (seconds) since the beginning of the simulation."""
        return self._world.now_s

    def note(self, *words: str | int | bytes) -> None:
        """Add an event to the trace, from which the digest is made."""
        self._world.event(*words)

    def start(self, application: Application, name: str) -> Process:
        """Run an application as a process of its own. When its function returns, the process ends. When the function
        raises, the simulation fails.
        """

        async def run(environment: SimulatedEnvironment) -> object:
            asyncio.get_running_loop().set_exception_handler(_pass_warnings)
            return await application(self)

        process = Process(self._world.add_host(name), run)
        self.applications.append(process)
        process.start()
        return process

    async def create_topic(
        self, name: str, partitions: int = 1, *, replicas: int | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic with aiokafka; failed attempts are repeated until the cluster has created it."""
        from aiokafka.admin import AIOKafkaAdminClient, NewTopic  # type: ignore[import-untyped]

        topic = NewTopic(name, partitions, replicas or min(3, len(self.nodes)), topic_configs=dict(settings or {}))
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap_servers)
        end_s = self.now_s + START_S
        await admin.start()
        try:
            while True:
                (answer,) = (await admin.create_topics([topic])).topic_errors
                if answer[1] in (0, TOPIC_EXISTS):
                    return
                if self.now_s > end_s:
                    raise SimulationError(f"the topic {name} was not created: error {answer[1]}, {answer[2]}")
                await asyncio.sleep(0.5)
        finally:
            await admin.close()

    # Faults

    def cut(self, one: Process, other: Process) -> None:
        """Let nothing pass between two processes, in either direction, until `heal`."""
        self._world.network.partition([one.name], [other.name])

    def heal(self) -> None:
        """End all cuts, resume all paused processes, and start all processes that do not run."""
        self._world.network.heal()
        for process in (*self.nodes, *self.applications):
            process.resume()
            process.start()

    async def trouble(self, duration_s: float, kinds: Iterable[str] = TROUBLES) -> None:
        """Cause random faults of the `kinds` for `duration_s` of virtual time. Each is healed before the next one."""
        chosen, end_s = tuple(kinds), self.now_s + duration_s
        for kind in chosen:
            if kind not in TROUBLES:
                raise ValueError(f"{kind!r} is unknown: here are {', '.join(TROUBLES)}")
        while self.now_s < end_s:
            await asyncio.sleep(min(self.random.uniform(*TROUBLE_PAUSE_S), max(0.0, end_s - self.now_s)))
            self._strike(self.random.choice(chosen))
            await asyncio.sleep(self.random.uniform(*TROUBLE_PAUSE_S))
            self.heal()

    def _strike(self, kind: str) -> None:
        what, _, whom = kind.partition(" ")
        self._world.event("trouble", kind)
        if what == "cut":
            self.cut(*self.random.sample([*self.nodes, *self.applications], 2))
            return
        processes = self.nodes if whom == "node" else self.applications
        running = [each for each in processes if each.is_running]
        if running:
            getattr(self.random.choice(running), what)()


def simulate(
    main: Main,
    *,
    seed: int = 0,
    nodes: int = 3,
    settings: Mapping[str, object] | None = None,
    limit_s: float = LIMIT_S,
) -> Outcome:
    """Run a story with a new simulated cluster, in virtual time, and return its result.

    `settings`: of every node. `limit_s`: the virtual time (seconds) after which the story has failed. Raises what the
    story raises, or what an application raises, with a note of the seed.
    """
    began = time.perf_counter()
    with World(seed, has_virtual_modules=True) as world:
        simulation = Simulation(world, nodes, settings or {})

        async def story() -> Any:
            asyncio.get_running_loop().set_exception_handler(_pass_warnings)
            for node in simulation.nodes:
                node.start()
            await _served(simulation)
            return await main(simulation)

        try:
            with _timestamps_of_virtual_time():
                value = world.run(story(), limit_s=limit_s)
        except BaseException as error:
            error.add_note(
                f"seed {seed}, after {world.now_s:.3f} s of virtual time: simulate(..., seed={seed}) repeats it"
            )
            raise
        return Outcome(value, world.digest(), world.now_s, time.perf_counter() - began)


def explore(
    main: Main, *, seconds: float, first_seed: int = 0, nodes: int = 3, settings: Mapping[str, object] | None = None
) -> int:
    """Run `simulate` with one seed after the other for `seconds` of real time. Returns the number of seeds. Raises what
    `simulate` raises for the first seed that fails."""
    end = time.monotonic() + seconds
    seed = first_seed
    while time.monotonic() < end:
        simulate(main, seed=seed, nodes=nodes, settings=settings)
        seed += 1
    return seed - first_seed


def node_properties(node_id: int, names: list[str]) -> dict[str, str]:
    """The settings of a simulated node, which is broker and controller. `names` are the host names of all nodes."""
    name, replicas = names[node_id - 1], str(min(3, len(names)))
    in_sync = str(max(1, int(replicas) - 1))
    properties = {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "controller.quorum.voters": ",".join(f"{i}@{each}:{CONTROLLER_PORT}" for i, each in enumerate(names, 1)),
        "listeners": f"PLAINTEXT://:{PORT},CONTROLLER://{name}:{CONTROLLER_PORT}",
        "advertised.listeners": f"PLAINTEXT://{name}:{PORT}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": DATA,
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "group.initial.rebalance.delay.ms": "0",
    }
    for topic in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic"):
        properties |= {f"{topic}.replication.factor": replicas, f"{topic}.num.partitions": "2"}
    return properties | {"transaction.state.log.min.isr": in_sync, "share.coordinator.state.topic.min.isr": in_sync}


async def serve(properties: Mapping[str, str], environment: SimulatedEnvironment) -> None:
    """The main function of a node's process: formats its directory at the first start, and runs the node."""
    config = checked_config(properties)
    if read_meta_properties(environment.fs, DATA) is None:
        format_directories(
            environment.fs,
            config,
            cluster_id=CLUSTER_ID,
            features={},
            ignore_formatted=True,
            standalone=False,
            entropy=environment.entropy,
            now_ms=environment.wall_ms(),
        )
    try:
        await Node(config, environment, asyncio.get_running_loop()).start()
    except (OSError, RegistrationRefused, CorruptLog):
        return  # as `moldau serve`, which logs the reason and ends
    await asyncio.get_running_loop().create_future()


async def _served(simulation: Simulation) -> None:
    """Wait until all nodes serve clients."""
    end_s = simulation.now_s + START_S
    for node in simulation.nodes:
        while True:
            try:
                _, writer = await asyncio.open_connection(node.name, PORT)
            except OSError:
                if simulation.now_s > end_s:
                    raise
                await asyncio.sleep(0.1)
            else:
                writer.close()
                break


def _pass_warnings(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Fail the simulation if `context` has an exception. A warning, such as that a consumer was not closed, has no
    effect.
    """
    if context.get("exception") is not None:
        loop.default_exception_handler(context)


@contextmanager
def _timestamps_of_virtual_time() -> Iterator[None]:
    """A context manager in which aiokafka gives records virtual timestamps, because its compiled code would read the
    system's clock.
    """
    try:
        builder: Any = import_module("aiokafka.producer.message_accumulator").BatchBuilder
    except ImportError:
        yield
        return
    append = builder.append

    def append_now(self: Any, *, timestamp: int | None, **record: Any) -> Any:
        return append(self, timestamp=time.time_ns() // 1_000_000 if timestamp is None else timestamp, **record)

    builder.append = append_now
    try:
        yield
    finally:
        builder.append = append
