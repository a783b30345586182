"""The nodes of a local cluster as processes: started together, watched, stopped in order.

    starting ──all answer──▶ serving ──signal, or no node left──▶ stopping ──second signal──▶ killed
       └──one ends─────────────────────────────────────────────────▲

Every node holds the reading end of a pipe to this process. If this process is killed, the pipe closes and the nodes
stop.
"""

from __future__ import annotations

import asyncio
import errno
import re
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import Final

from moldau.broker.cli.invocation import CommandError, Terminal
from moldau.broker.config.sources import internal_topic_settings
from moldau.broker.runtime.log_output import LEVEL_WORDS, STYLES
from moldau.storage.files.port import FileLock, FileSystem

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PROBE_S: Final = 0.1
STOP_PATIENCE_S: Final = 40.0
"""Time (seconds) after which a node that does not stop is killed. It is longer than the node's own limits."""


class Phase(Enum):
    STARTING = auto()
    SERVING = auto()
    STOPPING = auto()


class Processes:
    """The processes of a local cluster.

    `run` may be called once. It returns the exit status: 0 after a clean stop by a signal.
    """

    def __init__(self, layout: Layout, output: MergedOutput, variables: Mapping[str, str]) -> None:
        self._layout = layout
        self._output = output
        self._variables = {name: value for name, value in variables.items() if not name.startswith("KAFKA_")}
        """The environment variables without settings of Apache Kafka's image, because one value cannot be right for
        every node.
        """
        self._nodes: dict[int, Process] = {}
        self._phase = Phase.STARTING
        self._stop = asyncio.Event()
        self._has_failed = False

    async def run(self, serving: Callable[[], None]) -> int:
        """Run the nodes. `serving` is called when every node accepts connections."""
        loop = asyncio.get_running_loop()
        for each in SIGNALS:
            loop.add_signal_handler(each, self._signalled)
        for node_id in self._layout.node_ids:
            self._nodes[node_id] = await self._started(node_id)
        watching = [asyncio.create_task(self._watch(node_id)) for node_id in self._nodes]
        answering = asyncio.create_task(self._announce(serving))
        await self._stop.wait()
        self._phase = Phase.STOPPING
        answering.cancel()
        await self._stop_in_order()
        await asyncio.gather(*watching)
        return 1 if self._has_failed else 0

    async def _started(self, node_id: int) -> Process:
        command = ("-m", "moldau.broker.cli", "serve", "--until-eof", self._layout.file_of(node_id))
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *command,
            stdin=PIPE,
            stdout=DEVNULL,
            stderr=PIPE,
            env=self._variables,
            start_new_session=True,  # Ctrl-C is for this process alone, which stops the nodes in order.
        )

    async def _watch(self, node_id: int) -> None:
        """Copy the output of the node until the node ends."""
        node = self._nodes[node_id]
        assert node.stderr is not None
        await self._output.follow(node_id, node.stderr)
        status = await node.wait()
        if status:
            self._has_failed = True
        if self._phase is Phase.STOPPING:
            if status:
                self._output.write_own(f"node {node_id} {ended_text(status)}", "red")
            return
        file = self._layout.file_of(node_id)
        self._output.write_own(f"node {node_id} {ended_text(status)}; this starts it again: moldau serve {file}", "red")
        if self._phase is Phase.STARTING or all(each.returncode is not None for each in self._nodes.values()):
            self._has_failed = True
            self._stop.set()

    async def _announce(self, serving: Callable[[], None]) -> None:
        for node_id in self._layout.node_ids:
            while not await is_answering(self._layout.host, self._layout.port_of(node_id)):
                await asyncio.sleep(PROBE_S)
        self._phase = Phase.SERVING
        serving()

    def _signalled(self) -> None:
        if not self._stop.is_set():
            self._output.write_own("stopping the nodes one after the other; a second Ctrl-C kills them", "bold")
            self._stop.set()
            return
        self._output.write_own("killing the nodes; the next start recovers their logs", "red")
        for node in self._nodes.values():
            if node.returncode is None:
                node.kill()

    async def _stop_in_order(self) -> None:
        """Stop the brokers first, then the controllers, one after the other: each hands its leadership to the nodes
        that still run."""
        for node_id in sorted(self._nodes, reverse=True):
            node = self._nodes[node_id]
            if node.returncode is None:
                node.terminate()
                try:
                    await asyncio.wait_for(node.wait(), STOP_PATIENCE_S)
                except TimeoutError:
                    node.kill()


async def is_answering(host: str, port: int) -> bool:
    """Whether a process accepts connections at the address."""
    try:
        _, writer = await asyncio.open_connection(host, port)
    except OSError:
        return False
    writer.close()
    return True


def ended_text(status: int) -> str:
    """How the process ended, in words."""
    if status >= 0:
        return f"has ended with status {status}"
    return f"was ended by {signal.Signals(-status).name}"


# The nodes' settings and directories

VOTERS_MAX: Final = 3
"""The most nodes that are controllers too; the others are only brokers.

With three voters one may fail. Each further voter makes every decision of the quorum wait for one more disk.
"""
REPLICAS_MAX: Final = 3
PROPERTIES: Final = "server.properties"


@dataclass(frozen=True, slots=True)
class Layout:
    """The nodes 1 to `node_count`.

    Their client listeners have consecutive ports from `port` on; the ports of the controllers, those of the consoles
    and, where `advertised` is given, those between the brokers follow.
    """

    directory: str
    node_count: int
    host: str = "127.0.0.1"
    port: int = 9092
    racks: tuple[str, ...] = ()
    """Racks, assigned to the nodes in turn."""
    overrides: Mapping[str, str] = field(default_factory=dict)
    listen: str | None = None
    """The address on which the nodes accept clients; None: `host`."""
    advertised: tuple[str, ...] = ()
    """What the clients of each node are told, as host:port; empty: `host` and the node's own port. The nodes then
    reach each other by a listener of their own, because these addresses may be known to clients alone.
    """

    @property
    def node_ids(self) -> range:
        return range(1, self.node_count + 1)

    @property
    def voter_ids(self) -> range:
        """The ids of the voters: an odd number, because one more voter would not tolerate one more failure."""
        return range(1, 1 + (VOTERS_MAX if self.node_count >= VOTERS_MAX else 1))

    @property
    def ports(self) -> range:
        lists = 3 if self.advertised else 2
        return range(self.port, self.port + lists * self.node_count + len(self.voter_ids))

    @property
    def bootstrap(self) -> str:
        return ",".join(self.advertised or (self.address(node_id) for node_id in self.node_ids))

    def port_of(self, node_id: int) -> int:
        return self.port + node_id - 1

    def http_port_of(self, node_id: int) -> int:
        """The port of a node's console and metrics."""
        return self.port + self.node_count + len(self.voter_ids) + node_id - 1

    def port_between_brokers(self, node_id: int) -> int:
        """The port of a node for the other nodes, where clients are told other addresses."""
        return self.http_port_of(self.node_count) + node_id

    @property
    def console(self) -> str:
        """The address of the console of node 1."""
        return f"http://{self._host}:{self.http_port_of(1)}/"

    def address(self, node_id: int) -> str:
        return f"{self._host}:{self.port_of(node_id)}"

    def directory_of(self, node_id: int) -> str:
        return f"{self.directory}/node-{node_id}"

    def file_of(self, node_id: int) -> str:
        return f"{self.directory_of(node_id)}/{PROPERTIES}"

    def properties(self, node_id: int) -> dict[str, str]:
        """The properties of one node, in which overrides take precedence."""
        replicas = min(self.node_count, REPLICAS_MAX)
        listen = _in_url(self.listen or self.host)
        listeners = [f"PLAINTEXT://{listen}:{self.port_of(node_id)}"]
        told = [f"PLAINTEXT://{self.advertised[node_id - 1] if self.advertised else self.address(node_id)}"]
        if self.advertised:
            between = f"BROKER://{self._host}:{self.port_between_brokers(node_id)}"
            listeners.append(between)
            told.append(between)
        roles = ["broker"]
        if node_id in self.voter_ids:
            listeners.append(f"CONTROLLER://{self._controller(node_id)}")
            roles.append("controller")
        voters = ",".join(f"{voter_id}@{self._controller(voter_id)}" for voter_id in self.voter_ids)
        properties = {
            "process.roles": ",".join(roles),
            "node.id": str(node_id),
            "controller.quorum.voters": voters,
            "listeners": ",".join(listeners),
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "BROKER" if self.advertised else "PLAINTEXT",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": f"{self.directory_of(node_id)}/data",
            "default.replication.factor": str(replicas),
            "min.insync.replicas": str(max(1, replicas - 1)),
            **internal_topic_settings(replicas),
            "moldau.http.listener": f"http://{self._host}:{self.http_port_of(node_id)}",
            "moldau.console": "true",
        }
        if self.listen or self.advertised:
            properties["advertised.listeners"] = ",".join(told)
        if self.racks:
            properties["broker.rack"] = self.racks[(node_id - 1) % len(self.racks)]
        return properties | dict(self.overrides)

    @property
    def _host(self) -> str:
        return _in_url(self.host)

    def _controller(self, node_id: int) -> str:
        return f"{self._host}:{self.port + self.node_count + node_id - 1}"


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def properties_text(properties: Mapping[str, str]) -> str:
    """The properties as the text of a file that `moldau serve` reads."""
    lines = [f"{name}={value}" for name, value in properties.items()]
    return "\n".join(["# Written by `moldau cluster` at each start: use its options.", *lines, ""]).replace(
        "\\", "\\\\"
    )


# The claim on a directory and its ports

LOCK: Final = ".lock"


def claim_directory(files: FileSystem, layout: Layout) -> FileLock:
    """Lock the directory until this process ends: a second cluster would assign other ports to the nodes."""
    try:
        Path(layout.directory).mkdir(parents=True, exist_ok=True)
        return files.lock(f"{layout.directory}/{LOCK}")
    except BlockingIOError:
        raise CommandError(f"a cluster runs in {layout.directory} already: stop it, or give another --data") from None
    except OSError as problem:
        raise CommandError(f"{layout.directory} cannot be written: {problem.strerror}") from None


def refuse_taken_ports(layout: Layout) -> None:
    taken = [str(port) for port in layout.ports if not _is_free(layout.host, port)]
    if taken:
        which = f"port {taken[0]} is" if len(taken) == 1 else f"ports {', '.join(taken)} are"
        last = layout.ports[-1]
        raise CommandError(
            f"{which} taken on {layout.host}, and {layout.port} to {last} are needed: give another --port"
        )


def _is_free(host: str, port: int) -> bool:
    """Whether the address can be bound, as far as this can be known before the node listens. True for a malformed
    address: the node refuses it."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError:
        return True
    with socket.socket(family, kind) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # Connections of former clients do not count.
        try:
            probe.bind(address)
        except OSError as problem:
            return problem.errno != errno.EADDRINUSE
    return True


# The output of all nodes on one terminal

NODE_STYLES: Final = ("cyan", "green", "magenta", "blue")
"""The colours of nodes. Yellow and red are left out, because they mark warnings and errors."""
LINE_SIZE_MAX: Final = 1 << 16
"""The most bytes of a line; a longer line is shown in parts."""
_STYLE_OF_WORD: Final = {word: STYLES[level] for level, word in LEVEL_WORDS.items() if level in STYLES}
_LINE: Final = re.compile(r"\d{4}-\d\d-\d\dT(?P<time>[0-9:.]+)Z (?P<word>[A-Z]+) +(?P<rest>.*)", re.DOTALL)
"""The format of a log line of `log_output.Lines`."""


class MergedOutput:
    """Writes the lines of nodes, each of them whole, in the order in which they are read."""

    def __init__(self, terminal: Terminal, node_count: int) -> None:
        self._terminal = terminal
        self._width = max(len("cluster"), len(f"node-{node_count}"))

    def write_own(self, text: str, *styles: str) -> None:
        """Write a line of the cluster itself."""
        self._terminal.say(f"{'cluster':{self._width}} | {text}", *styles)

    def write_line(self, node_id: int, text: str) -> None:
        style = NODE_STYLES[(node_id - 1) % len(NODE_STYLES)]
        prefix = self._terminal.painted(f"{f'node-{node_id}':{self._width}} |", style)
        self._terminal.say(f"{prefix} {self._shown(text)}")

    async def follow(self, node_id: int, stream: asyncio.StreamReader) -> None:
        """Copy the output of a node until the node closes it."""
        rest = b""
        while chunk := await stream.read(LINE_SIZE_MAX):
            *lines, rest = (rest + chunk).split(b"\n")
            for each in lines:
                self.write_line(node_id, each.decode("utf-8", "replace"))
            if len(rest) >= LINE_SIZE_MAX:
                self.write_line(node_id, rest.decode("utf-8", "replace"))
                rest = b""
        if rest:
            self.write_line(node_id, rest.decode("utf-8", "replace"))

    def _shown(self, text: str) -> str:
        """A node's line as it is printed: on a terminal with its level in colour and without the date, elsewhere
        unchanged."""
        found = _LINE.fullmatch(text) if self._terminal.is_coloured else None
        if found is None:
            return text
        word = found["word"]
        painted = self._terminal.painted(f"{word:5}", *([_STYLE_OF_WORD[word]] if word in _STYLE_OF_WORD else []))
        return f"{self._terminal.painted(found['time'], 'dim')} {painted} {found['rest']}"
