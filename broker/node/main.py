"""The process of a node: its event loop, signals, logging, and the node from its start to a clean stop."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
import sys
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final

import uvloop

from moldau import __version__
from moldau.broker.cli.invocation import Terminal
from moldau.broker.config.config import Config
from moldau.broker.node.start_messages import (
    StartReport,
    advertised_addresses,
    advertised_warnings,
    refusal_line,
    report_of,
    with_advertised_hosts,
)
from moldau.broker.release import KAFKA_VERSION, hot_path_form, interpreter_text
from moldau.broker.runtime.environment import Environment, LocalEnvironment
from moldau.broker.runtime.log_output import write_log
from moldau.broker.runtime.loop_steps import LoopSteps, callback_name
from moldau.protocol.late_dataclass import dataclass

if TYPE_CHECKING:
    from moldau.broker.config.listeners import HttpAddress
    from moldau.broker.faults.control import ControlInterface
    from moldau.broker.faults.faults import Faults
    from moldau.broker.node.node import Node
    from moldau.broker.runtime.place import MachineProcesses
    from moldau.protocol.records.metadata import UserScramCredentialRecord

log = logging.getLogger("moldau")

GC_THRESHOLDS = (5_000, 1, 30_000)
"""The thresholds of Python's garbage collector, for `gc.set_threshold`.

A collection visits the objects of its generation. So the thresholds bound its length even while every object is kept,
as during loading: 0.2 ms for the first generation, 0.5 ms for the second. The second generation would take 1.5 ms with
a second threshold of 5, and 27 ms with ten times the first threshold. A collection of all objects comes after 300
million allocations at the earliest. It may be rare, because replies make no reference cycles.
"""
DESCRIPTORS_WANTED: Final = 10_000
"""The number of file descriptors below which a node with some hundred partitions and clients may run out of them."""
SWITCH_INTERVAL_S = 0.0002
"""The time (seconds) after which a computing thread (loading, decompression) releases the interpreter lock to the event
loop.

A request releases the lock at every system call, and then may wait this long to get it back. Four calls wait 20 ms with
Python's default of 5 ms, and still 4 ms with 1 ms.
"""
SECOND_SIGNAL_HINT: Final = " (Ctrl-C ends the process at once, and the next start recovers the logs)"
START_TASK_NAME: Final = "the start of the node"
"""The task name of the node's start."""
STEPS_PERIOD_S: Final = 60.0
"""The interval (seconds) at which the step that held the event loop longest is logged."""
EXIT_REFUSED = 1
"""The exit status of a node that could not start."""


@dataclass(frozen=True, slots=True)
class Formatting:
    """The options for formatting empty directories at the start of a node."""

    cluster_id: str | None = None
    """The cluster id; None to make a new one."""
    scram: tuple[str, ...] = ()
    """SCRAM credentials of users, in the form of `moldau format --add-scram`."""


@dataclass(frozen=True, slots=True)
class StartOptions:
    """The options for the start of a node besides its configuration."""

    formatting: Formatting | None = None
    """The options for formatting empty directories; None if a node with empty directories must not start."""
    in_memory: bool = False
    """Whether the files of the node are kept in memory, and are lost when the process ends."""
    until_eof: bool = False
    """Whether the node also stops when its standard input ends."""
    greet: Callable[[StartReport], None] | None = None
    """Called once clients are served; None for no call."""
    control: HttpAddress | None = None
    """The address at which the control interface for faults on demand serves; None on a node without faults."""
    faults: object = None
    """The faults that are set from the start on, as the JSON of a script; None for none."""
    is_quiet: bool = False
    """Whether the log shows only warnings, errors and progress until clients are served."""
    takes_port: bool = False
    """Whether the option --port sets the ports of the listeners, so that the message about a taken port can
    advise it.
    """
    place: MachineProcesses | None = None
    """The place of the node among the processes of its machine; None if the node is the only one."""


def serve(config: Config, errors: Terminal, start: StartOptions) -> int:
    """Run a node until SIGTERM or SIGINT, and write its log to `errors`. Returns the exit status of the process."""
    from moldau.broker.metadata.registration import RegistrationRefused
    from moldau.broker.metadata.storage_format import FormatError
    from moldau.broker.replicas.log_directories import NotFormatted
    from moldau.storage.log.recovery import CorruptLog

    show_all = write_log(errors, config.text("moldau.log.format"), is_quiet=start.is_quiet)
    log.info("moldau %s (Apache Kafka %s, %s, %s)", __version__, KAFKA_VERSION, interpreter_text(), hot_path_form())
    for warning in config.warnings:
        log.warning("%s", warning)
    config = with_advertised_hosts(config, socket.getfqdn)
    for line in advertised_addresses(config):
        log.info("%s", line)
    for warning in advertised_warnings(config):
        log.warning("%s", warning)
    loop = TimedLoop(LocalEnvironment.precise_ns)
    asyncio.set_event_loop(loop)
    environment = LocalEnvironment(loop, in_memory=start.in_memory)
    faults = None if start.control is None else _faults_of(environment)
    environment.prevent_core_files()
    descriptors_max = environment.raise_descriptors_max()
    if descriptors_max < DESCRIPTORS_WANTED:
        log.warning(
            "the process may open only %d files and connections; raise its limit of file descriptors (ulimit -n)",
            descriptors_max,
        )
    try:
        return loop.run_until_complete(NodeProcess(config, environment, loop, start, show_all, faults).run())
    except (NotFormatted, FormatError, RegistrationRefused, CorruptLog, OSError, ValueError) as refusal:
        log.critical("the node cannot start: %s", refusal_line(refusal, config, takes_port=start.takes_port))
        return EXIT_REFUSED
    finally:
        environment.close()
        loop.close()


def _faults_of(environment: LocalEnvironment) -> Faults:
    """The faults on demand of a node with a control interface."""
    from moldau.broker.apis.catalogue import responses
    from moldau.broker.faults.faults import Faults

    return Faults(responses(), environment.wall_ms)


def _format_where_missing(config: Config, environment: LocalEnvironment, formatting: Formatting) -> bool:
    """Format empty directories, so that one command is enough to try a node. The node becomes the only voter of its
    quorum, unless the configuration names the voters.

    Returns whether directories were formatted. Raises `FormatError`, also if they were formatted for another cluster
    than the one that is asked for, `InvalidMetaProperties`, `InvalidScram` and OSError.
    """
    from moldau.broker.cli.format_storage import fresh_cluster_id
    from moldau.broker.metadata.storage_format import FormatError, format_directories
    from moldau.storage.checkpoints.meta_properties import read_meta_properties

    found = {path: it for path in config.log_dirs if (it := read_meta_properties(environment.fs, path)) is not None}
    for path, properties in found.items():
        if formatting.cluster_id not in (None, properties.cluster_id):
            raise FormatError(f"{path} belongs to cluster {properties.cluster_id}, not to that of --cluster-id")
    if found:
        return False
    for line in format_directories(
        environment.fs,
        config,
        cluster_id=formatting.cluster_id or fresh_cluster_id(environment.entropy),
        features={},
        ignore_formatted=False,
        standalone=not config.controller_quorum_voters,
        entropy=environment.entropy,
        now_ms=environment.wall_ms(),
        credentials=_credentials(formatting, environment),
    ):
        log.info("%s", line)
    return True


def _refuse_further_cores(config: Config, environment: LocalEnvironment) -> None:
    """Raise `NotFormatted` if the directories have the data of several processes (--cores): a process alone would serve
    without the partitions of the others.
    """
    from moldau.broker.replicas.log_directories import NotFormatted
    from moldau.broker.runtime.place import core_numbers_in

    for path in config.log_dirs:
        further = core_numbers_in(environment.fs.list_directory(path)) if environment.fs.exists(path) else []
        if further:
            raise NotFormatted(
                f"{path} holds {1 + len(further)} broker processes: give --cores {further[-1]}, or moldau.cores in the"
                " file; --cores 1 moves their partitions to the first one"
            )


async def _refuse_taken_ports(config: Config, loop: asyncio.AbstractEventLoop) -> None:
    """Raise OSError if a listener cannot be bound, so that a start that will fail formats no directory."""
    from moldau.broker.runtime.acceptor import bound_sockets

    for each in config.listeners:
        for bound in await bound_sockets(loop, each.host or None, each.port):
            bound.close()


def _credentials(formatting: Formatting, environment: LocalEnvironment) -> list[UserScramCredentialRecord]:
    if not formatting.scram:
        return []
    from moldau.broker.cli.scram_credentials import scram_record

    return [scram_record(each, environment.entropy) for each in formatting.scram]


class TimedLoop(uvloop.Loop):
    """The event loop of a node. It measures the duration of each callback, timer and step of a task."""

    def __init__(self, time_ns: Callable[[], int]) -> None:
        super().__init__()
        self.steps = LoopSteps()
        self._time_ns = time_ns

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:  # type: ignore[override]
        return super().call_soon(self._timed, callback, args, context=context)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return super().call_later(delay, self._timed, callback, args, context=context)

    def _timed(self, callback: Any, args: Any) -> None:
        began_ns = self._time_ns()
        callback(*args)
        held_ns = self._time_ns() - began_ns
        if held_ns > self.steps.longest_ns:
            name = callback_name(callback)
            self.steps.note_step(held_ns, lambda: name)


class InputEnd(asyncio.Protocol):
    """Watches standard input, whose other end the parent process holds. The input ends when the parent process does."""

    def __init__(self, ended: Callable[[], None]) -> None:
        self._ended = ended

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended()


class NodeProcess:
    """Runs one node, from its start to its clean stop. `run` may be called once."""

    def __init__(
        self,
        config: Config,
        environment: LocalEnvironment,
        loop: TimedLoop,
        start: StartOptions,
        show_all: Callable[[], None],
        faults: Faults | None = None,
    ) -> None:
        self._config = config
        self._environment = environment
        self._loop = loop
        self._start = start
        self._show_all = show_all
        self._stopping: asyncio.Future[str] = loop.create_future()
        self._began_ns = environment.precise_ns()
        self._faults = faults
        self._control: ControlInterface | None = None

    async def run(self) -> int:
        """Run the node until it is told to stop. Returns the exit status. Raises the error that prevents the start."""
        life = asyncio.current_task()
        assert life is not None
        life.set_name(START_TASK_NAME)
        if self._start.place is None:
            _refuse_further_cores(self._config, self._environment)
        await self._handle_signals()
        if self._stopping.done():
            return self._stopped_early()
        formatting = self._start.formatting
        if formatting is not None and not self._start.in_memory:
            await _refuse_taken_ports(self._config, self._loop)
        is_formatted = formatting is not None and _format_where_missing(self._config, self._environment, formatting)
        node = await self._started()
        if node is None:
            # The node may have waited long for its peers. Written data survives the end of a process.
            return self._stopped_early()
        for each in node.listeners:
            log.info("%s listener %s on %s:%d", each.role.name, each.name, each.host or "*", each.port)
        log.info("node %d of cluster %s serves", self._config.node_id, node.cluster.id)
        if self._start.greet is not None:
            self._start.greet(
                report_of(
                    self._config,
                    node.cluster.id,
                    formatted=is_formatted,
                    recovered=node.logs.opened,
                    control=None if self._control is None else self._control.address,
                    start_ms=(self._environment.precise_ns() - self._began_ns) // 1_000_000,
                )
            )
        self._show_all()
        self._loop.call_later(STEPS_PERIOD_S, self._log_longest_step)
        gc.freeze()
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        await asyncio.sleep(0)  # The last step of the start is over then, and measured.
        self._loop.steps.end_start()
        life.set_name("the life of the node")
        if node.departure is not None:
            node.tasks.spawn(node.departure.run(lambda: self._stop("its departure")))
        reason = await self._stopping
        at_once = SECOND_SIGNAL_HINT if self._start.place is None else ""
        log.info("stopping on %s: leadership is handed over, then the logs are flushed and closed%s", reason, at_once)
        await node.stop()
        if self._control is not None:
            self._control.stop()
        log.info("stopped")
        return 0 if node.departure is None else node.departure.exit_status

    def _stopped_early(self) -> int:
        log.info("stopping on %s, before the node served", self._stopping.result())
        return 0

    async def _started(self) -> Node | None:
        """Start the node. Returns it once it serves, or None if the process was told to stop before. Raises the error
        that prevents the start.
        """
        from moldau.broker.node.node import Node

        load_hot_path()
        environment = self._node_environment()
        node = Node(self._config, environment, self._loop, self._loop.steps, self._faults, self._start.place)
        if self._start.control is not None and self._faults is not None:
            await self._serve_control(self._start.control, self._faults, node)
        # Only now: the declaration of a message leaves a class behind, whose memory the next declarations use again.
        # No full collection: 15 ms of a start for 0.1 MB.
        gc.set_threshold(*GC_THRESHOLDS)
        starting = self._loop.create_task(node.start(), name=START_TASK_NAME)
        self._stopping.add_done_callback(lambda _: starting.cancel())
        try:
            await starting
        except asyncio.CancelledError:
            return None
        return node

    def _node_environment(self) -> Environment:
        if self._faults is None:
            return self._environment
        from moldau.broker.faults.clock import FaultyEnvironment

        return FaultyEnvironment(self._environment, self._faults)

    async def _serve_control(self, address: HttpAddress, faults: Faults, node: Node) -> None:
        """Serve the control interface for faults on demand at `address`, and set the faults of the start. Raises
        OSError and `InvalidFault`.
        """
        from moldau.broker.faults.control import ControlInterface
        from moldau.broker.faults.moves import LeaderMoves

        moves = LeaderMoves(node.cluster, node.quorum, node.coordinators, self._loop)
        self._control = ControlInterface(
            self._config.node_id, faults, moves, node.log_jobs, self._loop, node.tasks.spawn
        )
        await self._control.start(address)
        if self._start.faults is not None:
            self._control.add_script(self._start.faults)

    async def _handle_signals(self) -> None:
        for each in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(each, self._stop, each.name)
        if self._start.until_eof:
            if not self._environment.watchable_input():
                raise ValueError("--until-eof needs a pipe as its standard input, and this is a file or a device")
            if self._environment.has_input_ended():
                # Nothing is written: the process that started the node may have removed its directory already.
                self._stop("the end of its input")
                return
            await self._loop.connect_read_pipe(lambda: InputEnd(lambda: self._stop("the end of its input")), sys.stdin)

    def _log_longest_step(self) -> None:
        self._loop.steps.log_longest()
        self._loop.call_later(STEPS_PERIOD_S, self._log_longest_step)

    def _stop(self, reason: str) -> None:
        if not self._stopping.done():
            self._stopping.set_result(reason)
            # From now on Ctrl-C ends the process at once.
            self._loop.remove_signal_handler(signal.SIGINT)
            signal.signal(signal.SIGINT, signal.SIG_DFL)


def load_hot_path() -> None:
    """Import the modules of the hot path, most of which would otherwise be imported at the first request.

    In a checkout the extension modules of the hot path may be replaced while this process runs: it must not load some
    modules of one build and others of the next.
    """
    from moldau.broker.apis.records import fetch, produce  # noqa: F401
    from moldau.broker.coordinators import heartbeat_hook  # noqa: F401
    from moldau.broker.network import direct_output  # noqa: F401
    from moldau.broker.runtime import file_sending  # noqa: F401
    from moldau.coordinator.shard import offset_walk  # noqa: F401
    from moldau.storage.compaction import batch_cleaner, offset_map, segments  # noqa: F401
    from moldau.storage.erasure import kept_records  # noqa: F401
