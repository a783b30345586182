"""The process: a loop, signals, logging, and one broker from start to clean stop."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
import sys
from collections.abc import Callable
from typing import Final

from broker.cli.terminal import Terminal
from broker.config.config import Config
from broker.node.advertised import doubts, named, told
from broker.runtime.environment import LocalEnvironment
from broker.runtime.log_output import write_log

log = logging.getLogger("moldau")

GC_THRESHOLDS = (50_000, 5, 1_000)
"""The first collection after so many allocations: replies make no cycles, so frequent looks find nothing. The second
looks at what the last five kept: loading keeps everything, and fifty times as much would stop the loop for 0.3 s."""
DESCRIPTORS_WANTED: Final = 10_000
"""With fewer a node of some hundred partitions and clients runs out of them."""
SWITCH_INTERVAL_S = 0.0002
"""After how long a thread that computes (loading, decompression) gives way to the loop. A request gives way itself at
every system call: at Python's 5 ms, four of them are 20 ms, and at 1 ms still 4."""
EXIT_REFUSED = 1
"""Exit status of a node that could not start."""


def serve(config: Config, errors: Terminal, *, format_if_missing: bool, until_eof: bool = False) -> int:
    """Run a node until SIGTERM or SIGINT, its log on `errors`; the exit status of the process."""
    from broker.metadata.storage_format import FormatError
    from broker.replicas.node_directories import NotFormatted

    write_log(errors, config.text("moldau.log.format"))
    for warning in config.warnings:
        log.warning("%s", warning)
    config = named(config, socket.getfqdn)
    for line in told(config):
        log.info("%s", line)
    for doubt in doubts(config):
        log.warning("%s", doubt)
    loop = _new_loop()
    asyncio.set_event_loop(loop)
    environment = LocalEnvironment(loop)
    descriptors_max = environment.raise_descriptors_max()
    if descriptors_max < DESCRIPTORS_WANTED:
        log.warning("the process may have %d file descriptors only; raise its limit (ulimit -n)", descriptors_max)
    try:
        if format_if_missing:
            _format_where_missing(config, environment)
        return loop.run_until_complete(_run(config, environment, loop, until_eof=until_eof))
    except (NotFormatted, FormatError, OSError, ValueError) as refusal:
        log.critical("the node cannot start: %s", refusal)
        return EXIT_REFUSED
    finally:
        environment.close()
        loop.close()


def _format_where_missing(config: Config, environment: LocalEnvironment) -> None:
    """Make a node of one out of empty directories, so that it can be tried with one command."""
    from broker.cli.format_storage import fresh_cluster_id
    from broker.metadata.storage_format import format_directories
    from storage.checkpoints.meta_properties import META_PROPERTIES

    if any(environment.fs.exists(f"{path}/{META_PROPERTIES}") for path in config.log_dirs):
        return
    for line in format_directories(
        environment.fs,
        config,
        cluster_id=fresh_cluster_id(environment.entropy),
        features={},
        ignore_formatted=False,
        standalone=True,
        entropy=environment.entropy,
        now_ms=environment.wall_ms(),
    ):
        log.info("%s", line)


def _new_loop() -> asyncio.AbstractEventLoop:
    import uvloop

    return uvloop.new_event_loop()


class InputEnd(asyncio.Protocol):
    """Whoever started this process holds the other end of its standard input, and may die."""

    def __init__(self, ended: Callable[[], None]) -> None:
        self._ended = ended

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended()


async def _run(
    config: Config, environment: LocalEnvironment, loop: asyncio.AbstractEventLoop, *, until_eof: bool
) -> int:
    from broker.metadata.registration import RegistrationRefused
    from broker.node.node import Node
    from storage.log.recovery import CorruptLog

    stopping: asyncio.Future[str] = loop.create_future()

    def stop(name: str) -> None:
        if not stopping.done():
            stopping.set_result(name)

    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, stop, each.name)
    if until_eof:
        await loop.connect_read_pipe(lambda: InputEnd(lambda: stop("the end of its input")), sys.stdin)
    gc.set_threshold(*GC_THRESHOLDS)  # what a start reads, it keeps
    node = Node(config, environment, loop)
    this = asyncio.current_task()
    assert this is not None
    stopping.add_done_callback(lambda _: None if is_serving else this.cancel())
    is_serving = False
    try:
        await node.start()
        is_serving = True
    except (RegistrationRefused, CorruptLog, OSError) as refusal:
        log.critical("the node cannot start: %s", refusal)
        return EXIT_REFUSED
    except asyncio.CancelledError:
        # It may wait for its peers for long. What it has written survives the end of a process at any moment.
        log.info("stopping on %s, before the node has served", stopping.result())
        return 0
    for listener in node.listeners:
        log.info("%s listener %s on %s:%d", listener.role.name, listener.name, listener.host or "*", listener.port)
    log.info("node %d of cluster %s serves", config.node_id, node.cluster.id)
    gc.collect()
    gc.freeze()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    log.info("stopping on %s", await stopping)
    await node.stop()
    log.info("stopped")
    return 0
