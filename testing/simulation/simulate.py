"""`simulate`: a cluster and applications built on aiokafka in one process, on virtual time, under faults of a seed.

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
`RealityTouched`. Clocks and generators of the modules `time` and `random` are virtual, except if an application
bound them by `from time import time`.
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
"""The error of a topic that was created by an earlier request, whose answer was lost."""
TROUBLES: Final = ("kill node", "crash node", "pause node", "cut", "kill application", "pause application")
TROUBLE_PAUSE_S: Final = (0.2, 6.0)
"""The range (seconds) from which the time before each fault and the duration of each fault are drawn."""

Main = Callable[["Simulation"], Awaitable[Any]]
"""The story: the coroutine function of the test, which no fault ends."""
Application = Callable[["Simulation"], Coroutine[Any, Any, object]]
"""The main function of a process that may be killed. It begins anew at each start."""


class Outcome(NamedTuple):
    """The result of a simulation."""

    value: Any
    """What the story returned."""
    digest: str
    """A digest that is equal for equal runs: the same seed, story, versions and Python."""
    simulated_s: float
    seconds: float
    """The real time (seconds)."""


class Process:
    """An application or a node on a host of its own. What it keeps in memory is gone when it ends."""

    def __init__(self, simulation: Simulation, host: Host, main: Callable[[SimulatedEnvironment], Any]) -> None:
        self.name: Final = host.name
        self._simulation = simulation
        self._host = host
        self._main = main

    @property
    def is_running(self) -> bool:
        return self._host.is_up

    def start(self) -> None:
        """Start the process, if it does not run."""
        if not self._host.is_up:
            self._host.boot(self._main)

    def kill(self) -> None:
        """End the process at once, as `kill -9`: its connections are closed, its files stay."""
        self._host.kill()

    def crash(self) -> None:
        """Cut the power of the host: what was not synced is lost, and peers may hear nothing of it."""
        self._host.crash()

    def pause(self) -> None:
        """Hold the process; its connections stay open."""
        self._host.pause()

    def resume(self) -> None:
        self._host.resume()

    def restart(self) -> None:
        """Kill the process, if it runs, and start it."""
        if self._host.is_up:
            self._host.kill()
        self.start()


class SimulationError(AssertionError):
    """A simulated world did not do what a story needs."""


class Simulation:
    """A cluster in a world of its own, as its story and its applications see it."""

    def __init__(self, world: World, nodes: int, settings: Mapping[str, object]) -> None:
        self._world = world
        self.random: Final = Random(f"{world.seed}/story")
        """The generator for the choices of the story; its seed is the simulation's."""
        self.nodes: Final[list[Process]] = []
        self.applications: Final[list[Process]] = []
        names = [f"broker-{number}" for number in range(1, nodes + 1)]
        self.bootstrap_servers: Final = ",".join(f"{name}:{PORT}" for name in names)
        for number, name in enumerate(names, 1):
            host = world.add_host(name)
            host.may_halt = True
            properties = node_properties(number, names) | {key: str(value) for key, value in settings.items()}
            self.nodes.append(Process(self, host, partial(serve, properties)))

    @property
    def now_s(self) -> float:
        """The virtual time since the beginning of the world."""
        return self._world.now_s

    def note(self, *words: str | int | bytes) -> None:
        """Put an event into the trace, of which the digest is made."""
        self._world.event(*words)

    def start(self, application: Application, name: str) -> Process:
        """Run an application as a process of its own. When its function returns, the process ends; when it raises, the
        simulation fails.
        """

        async def run(environment: SimulatedEnvironment) -> object:
            asyncio.get_running_loop().set_exception_handler(_pass_warnings)
            return await application(self)

        process = Process(self, self._world.add_host(name), run)
        self.applications.append(process)
        process.start()
        return process

    async def create_topic(
        self, name: str, partitions: int = 1, *, replicas: int | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic with aiokafka, and try again until the cluster has created it."""
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
        """Let nothing pass between two processes, in both directions, until `heal`."""
        self._world.network.partition([one.name], [other.name])

    def heal(self) -> None:
        """End all cuts, let all paused processes go on, and start what does not run."""
        self._world.network.heal()
        for process in (*self.nodes, *self.applications):
            process.resume()
            process.start()

    async def trouble(self, duration_s: float, kinds: Iterable[str] = TROUBLES) -> None:
        """Cause faults, one after the other, for some virtual time, drawn from the seed; then heal everything."""
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
    """Run a story in a world of its own, in virtual time, and return its result.

    `settings`: of every node. `limit_s`: the virtual time after which the story has failed. Raises what the story
    raises, or what an application raises, with a note of the seed.
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
    """Simulate one seed after the other for some real time. Returns the number of seeds; raises for the first one that
    fails, as `simulate` does.
    """
    end = time.monotonic() + seconds
    seed = first_seed
    while time.monotonic() < end:
        simulate(main, seed=seed, nodes=nodes, settings=settings)
        seed += 1
    return seed - first_seed


def node_properties(node_id: int, names: list[str]) -> dict[str, str]:
    """The settings of a node that is broker and controller."""
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
    """The process of a node."""
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
    """Fail the simulation after an exception; a warning, such as that a consumer was not closed, does not fail it."""
    if context.get("exception") is not None:
        loop.default_exception_handler(context)


@contextmanager
def _timestamps_of_virtual_time() -> Iterator[None]:
    """Give records virtual timestamps: aiokafka's compiled code would read the system's clock."""
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
