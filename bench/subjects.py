"""The brokers that are compared: that of this checkout, and Apache Kafka if Java and its jars are installed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from ctypes import CDLL
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from bench import load
from bench.client import Client, connect_with_retries
from tests.conformance.brokers import TRANSACTION_VERSION, Apache, Broker, Moldau, Ports
from tests.conformance.toolchain import Missing, Toolchain

if TYPE_CHECKING:
    from bench.contenders import Contender

_LIBC: Final = CDLL(None)
_SET_DEATH_SIGNAL: Final = 1
"""PR_SET_PDEATHSIG of prctl(2)."""
COMPILED: Final = ("moldau.broker.network.connection", "moldau.protocol.record_batch")
"""Two modules of the hot path, which show whether it is compiled."""
LAST_LINES: Final = 20
"""The number of lines of a broker's log that are shown if a measurement fails."""
SCRATCH_PIECE = bytes(1 << 20)
SETTINGS = ("log.segment.delete.delay.ms=1000", "num.partitions=1")
"""The settings of both brokers besides those of the conformance run. Deleted topics release their space soon."""


class Server(Protocol):
    """A broker with a directory of its own, which can be formatted and started."""

    name: str
    directory: Path
    data: Path
    port: int

    def format(self) -> None: ...
    def serve_command(self) -> list[str]: ...


class MoldauServer(Moldau):
    """The broker of this checkout, started by the installed command as a user does."""

    def serve_command(self) -> list[str]:
        return [str(Path(sys.executable).with_name("moldau")), "serve", str(self.properties)]

    def serve_command_without_file(self) -> list[str]:
        """The command of a node that formats its own directory."""
        addresses = f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.port + 1}"
        names = ("listeners", "advertised.listeners")
        overrides = [word for name in names for word in ("--override", f"{name}={addresses}")]
        return [*self.serve_command()[:2], "--data", str(self.data), *overrides]


class Bench:
    """The directories, ports and shared brokers of one run. A `with` block ends the shared brokers."""

    def __init__(self, directory: Path, ports: Ports, toolchain: Toolchain | None) -> None:
        self.directory = directory
        self.toolchain = toolchain
        self.contenders: list[Contender] = []
        """Brokers under load that several groups share, once `bench.contenders.warmed_contenders` has started them."""
        self.running = ExitStack()
        self._ports = ports
        self._count = 0

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the shared brokers. The next group that needs them gets new ones."""
        self.contenders = []
        self.running.close()

    def clear(self) -> None:
        """After a failure, end the shared brokers and delete the directories that were left."""
        self.close()
        for path in self.directory.iterdir():
            shutil.rmtree(path, ignore_errors=True)

    def last_lines(self) -> str:
        return "\n".join(contender.last_lines() for contender in self.contenders)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the available brokers, ours first."""
        return ("moldau",) if self.toolchain is None else ("moldau", "apache")

    def free_pair(self) -> int:
        """A free port whose successor is free, too."""
        return self._ports.pair()

    def new_server(
        self, name: str, transaction_version: int = TRANSACTION_VERSION, extra: Sequence[str] = ()
    ) -> Broker:
        """A broker that is neither formatted nor started. `extra` are lines of its properties."""
        self._count += 1
        home = self.directory / f"{name}-{self._count}"
        server: Broker
        if name == "moldau":
            server = MoldauServer(home, self._ports.pair(), (*SETTINGS, *extra))
        else:
            assert self.toolchain is not None
            server = Apache(home, self._ports.pair(), self.toolchain, (*SETTINGS, *extra))
        server.transaction_version = transaction_version
        return server


class RunningBroker:
    """A broker process. `with` ends it."""

    def __init__(self, server: Server, command: Sequence[str] | None = None) -> None:
        self.server = server
        server.directory.mkdir(parents=True, exist_ok=True)
        with (server.directory / "server.log").open("ab") as log:
            self.started = time.perf_counter()
            words = server.serve_command() if command is None else list(command)
            self._process = subprocess.Popen(
                words, stdout=log, stderr=log, start_new_session=True, preexec_fn=die_with_parent
            )
        self.pid = self._process.pid

    def __enter__(self) -> RunningBroker:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            # The directory goes with the run, and what the broker said would go with it.
            ended = "runs" if self.status is None else f"has ended with status {self.status}"
            lines = (self.server.directory / "server.log").read_text(errors="replace").splitlines()[-LAST_LINES:]
            print(f"  {self.server.name} {ended}; it said last:", *lines, sep="\n    ", flush=True)
        self.stop()

    @property
    def status(self) -> int | None:
        """The exit status of the process; None while it runs."""
        return self._process.poll()

    def connect(self) -> Client:
        return connect_with_retries(self.server.port)

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


def die_with_parent() -> None:
    """Called in a child process before exec: let the kernel kill the child when this process ends."""
    _LIBC.prctl(_SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


def find_peer() -> Toolchain | None:
    """Find what is needed to run Apache Kafka, with its jars fetched by Maven. If it cannot run, print why."""
    toolchain = Toolchain(fetch=True)
    try:
        toolchain.java()
        toolchain.jars()
    except Missing as missing:
        print(f"Apache Kafka is not measured: {missing}")
        return None
    return toolchain


def warm_memory(directory: Path, size: int) -> None:
    """Write and delete a scratch file of this size, because memory that was never used before takes writes at a tenth
    of the speed."""
    path = directory / "scratch"
    with path.open("wb", buffering=0) as scratch:
        for _ in range(size >> 20):
            scratch.write(SCRATCH_PIECE)
    path.unlink()


def remove_server(server: Server) -> None:
    shutil.rmtree(server.directory, ignore_errors=True)


def _is_compiled(module: str) -> bool:
    spec = find_spec(module)
    return spec is not None and str(spec.origin).endswith(".so")


def is_compiled() -> bool:
    """Whether the brokers of this checkout run the compiled hot path."""
    return all(map(_is_compiled, COMPILED))


def machine_text() -> dict[str, str]:
    """The facts about the machine and the versions on which the figures depend."""
    models = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    system = os.uname()
    return {
        "cpu": f"{os.cpu_count()} x {models[0] if models else system.machine}",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 1e9:.0f} GB",
        "system": f"{system.sysname} {system.release}",
        "python": sys.version.split()[0],
        "hot path": "compiled" if is_compiled() else "plain Python",
        "load generator": load.loop_language(),
    }
