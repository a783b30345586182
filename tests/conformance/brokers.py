"""The two brokers that the scenarios are held against, each a process on a free port with a directory of its own."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Protocol

from tests.conformance.outcome import Failed
from tests.conformance.toolchain import Toolchain

TRANSACTION_VERSION = 2
"""The level of `transaction.version` if a run names no other: that of a new cluster."""
RELEASE = os.environ.get("MOLDAU_KAFKA_RELEASE", "4.3-IV0")
"""The metadata version of new clusters of Apache Kafka."""

START_S = 180.0
"""For a node to open its port; three JVMs on a busy machine take more than a minute."""

PROPERTIES = """\
process.roles=broker,controller
node.id=1
{quorum}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={data}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.num.partitions=4
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
"""

ZOOKEEPER_PROPERTIES = """\
broker.id=1
zookeeper.connect=127.0.0.1:{zookeeper_port}
listeners=PLAINTEXT://127.0.0.1:{port}
log.dirs={data}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.num.partitions=4
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
"""

GUEST_PROPERTIES = """\
process.roles=broker
node.id=2
controller.quorum.bootstrap.servers=127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={data}
offsets.topic.replication.factor=2
offsets.topic.num.partitions=4
"""


def format_features(transaction_version: int) -> list[str]:
    """The words that format Apache Kafka, and Moldau, with the levels of the features that a new cluster has, but for
    that of transactions.
    """
    named = transaction_version != TRANSACTION_VERSION
    return ["--feature", f"transaction.version={transaction_version}"] if named else []


class Ports:
    """Free ports in pairs, below the range from which the system takes the ports of outgoing connections.

    Each process begins elsewhere in the range, so that two runs at a time do not meet.
    """

    def __init__(self, first: int = 21_000, end: int = 22_000) -> None:
        start = first + os.getpid() * 20 % (end - first)
        self._candidates: Iterator[int] = chain(range(start, end, 2), range(first, start, 2))
        self._lock = threading.Lock()

    def pair(self) -> int:
        """A port that is free together with the next one."""
        with self._lock:
            return next(port for port in self._candidates if _is_free(port) and _is_free(port + 1))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


class Served(Protocol):
    """What clients are held against: one node or several."""

    @property
    def name(self) -> str: ...

    @property
    def bootstrap(self) -> str: ...

    @property
    def node_count(self) -> int: ...

    @property
    def directories(self) -> Sequence[Path]:
        """The log directories of all nodes; none if nobody can look."""


class Broker:
    """A broker process. `directory` holds its properties, its log output and its data."""

    name = "broker"
    node_count = 1
    transaction_version = TRANSACTION_VERSION
    release = RELEASE
    """The metadata version that it is formatted with."""
    format_words: Sequence[str] = ()
    """More words of the command that formats it."""

    def __init__(self, directory: Path, port: int, extra: Sequence[str] = ()) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.data = directory / "data"
        self.port = port
        self.bootstrap = f"127.0.0.1:{port}"
        self.properties = directory / "server.properties"
        self.log = directory / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        quorum = f"controller.quorum.bootstrap.servers=127.0.0.1:{port + 1}"
        text = PROPERTIES.format(port=port, controller_port=port + 1, data=self.data, quorum=quorum)
        self.properties.write_text(text + "".join(line + "\n" for line in extra))

    def set(self, settings: Mapping[str, str]) -> None:
        """Settings of the properties file, in the place of those of the same names."""
        lines = self.properties.read_text().splitlines()
        kept = [line for line in lines if line.partition("=")[0] not in settings]
        self.properties.write_text("\n".join([*kept, *(f"{name}={value}" for name, value in settings.items()), ""]))

    @property
    def directories(self) -> tuple[Path, ...]:
        """Log directories, to be looked into."""
        return (self.data,)

    def format_command(self) -> list[str]:
        raise AssertionError("each broker says its own")

    def serve_command(self) -> list[str]:
        raise AssertionError("each broker says its own")

    def format(self) -> None:
        command = [*self.format_command(), *self.format_words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=START_S)
        if done.returncode != 0:
            raise Failed(f"{self.name} format: {done.stdout[-600:]}{done.stderr[-600:]}")

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self.serve_command(), stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + START_S
        while _is_free(self.port):
            if self._process.poll() is not None:
                raise Failed(f"{self.name} ended at start with status {self._process.returncode}: {self.last_lines()}")
            if time.monotonic() > deadline:
                raise Failed(f"{self.name} has not opened its port: {self.last_lines()}")
            time.sleep(0.05)
        time.sleep(0.2)
        if self._process.poll() is not None:
            raise Failed(f"{self.name} ended at start, its port is another's: {self.last_lines()}")

    def stop(self, patience_s: float = 60) -> int:
        """SIGTERM, and the status with which the process ended; killed after so many seconds."""
        if self._process is None:
            return 0
        process, self._process = self._process, None
        process.send_signal(signal.SIGTERM)
        try:
            return process.wait(timeout=patience_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise Failed(f"{self.name} has not stopped within {patience_s:g} s of SIGTERM") from None

    def kill(self) -> None:
        """SIGKILL: the process closes nothing."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def last_lines(self, count: int = 5) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-count:])

    def complaints(self, since: int = 0) -> list[str]:
        """Lines of its log from WARN up, after position `since`."""
        text = self.log.read_bytes()[since:].decode(errors="replace")
        return [line for line in text.splitlines() if re.search(r"WARN|ERROR|FATAL|CRITICAL|Traceback|Error:", line)]


class Apache(Broker):
    """Apache Kafka of the version in `peer/pom.xml`."""

    name = "apache"

    def __init__(self, directory: Path, port: int, toolchain: Toolchain, extra: Sequence[str] = ()) -> None:
        super().__init__(directory, port, extra)
        self._toolchain = toolchain

    def format_command(self) -> list[str]:
        features = format_features(self.transaction_version)
        storage = [*self._toolchain.server_command(), "kafka.tools.StorageTool", "format", "--standalone", "-g"]
        return [*storage, "-t", CLUSTER_ID, "-c", str(self.properties), "--release-version", self.release, *features]

    def serve_command(self) -> list[str]:
        return [
            *self._toolchain.server_command("-Xms1g", "-Xmx1g", "-XX:+UseG1GC"),
            "kafka.Kafka",
            str(self.properties),
        ]


class Release(Apache):
    """Apache Kafka of another version, with a controller in the process."""

    def __init__(self, directory: Path, port: int, toolchain: Toolchain, version: str) -> None:
        super().__init__(directory, port, toolchain)
        self.name = f"apache {version}"
        self._jars = toolchain.release_jars(version)

    def format_command(self) -> list[str]:
        """With the metadata version of its release, or with ours if that is lower."""
        words = ["kafka.tools.StorageTool", "format", "--standalone", "-t", CLUSTER_ID, "-c", str(self.properties)]
        newest = ["--release-version", RELEASE] if self.name > f"apache {RELEASE}" else []
        return [*self._toolchain.java_command(jars=self._jars), *words, *newest]

    def serve_command(self) -> list[str]:
        java = self._toolchain.java_command("-Xmx512m", "-XX:+UseSerialGC", jars=self._jars)
        return [*java, "kafka.Kafka", str(self.properties)]


class ZooKeeperRelease(Release):
    """Apache Kafka of the years before KRaft, and its ZooKeeper."""

    def __init__(self, directory: Path, port: int, toolchain: Toolchain, version: str) -> None:
        super().__init__(directory, port, toolchain, version)
        self._zookeeper = directory / "zookeeper.properties"
        self._zookeeper.write_text(f"clientPort={port + 1}\nadmin.enableServer=false\ndataDir={directory}/zookeeper\n")
        self._running: subprocess.Popen[bytes] | None = None
        self.properties.write_text(ZOOKEEPER_PROPERTIES.format(port=port, zookeeper_port=port + 1, data=self.data))

    def format(self) -> None:
        """Its directory needs none."""

    def start(self) -> None:
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        with (self.directory / "zookeeper.log").open("ab") as log:
            command = [*self._toolchain.java_command(jars=self._jars), main, str(self._zookeeper)]
            self._running = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        super().start()

    def stop(self, patience_s: float = 60) -> int:
        try:
            return super().stop(patience_s)
        finally:
            if self._running is not None:
                self._running.kill()
                self._running.wait()
                self._running = None


class Guest(Apache):
    """A broker of Apache Kafka's, and nothing else, in somebody else's cluster."""

    name = "guest"

    def __init__(self, directory: Path, port: int, controller_port: int, toolchain: Toolchain) -> None:
        super().__init__(directory, port, toolchain)
        self.properties.write_text(GUEST_PROPERTIES.format(port=port, controller_port=controller_port, data=self.data))

    def format_command(self) -> list[str]:
        words = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(self.properties)]
        return [*self._toolchain.server_command(), *words]

    def serve_command(self) -> list[str]:
        return [*self._toolchain.server_command("-Xmx512m"), "kafka.Kafka", str(self.properties)]


class Moldau(Broker):
    """The broker of this checkout."""

    name = "moldau"

    def format_command(self) -> list[str]:
        named = ["-t", CLUSTER_ID, "-c", str(self.properties)]
        features = format_features(self.transaction_version)
        return [*MOLDAU, "format", "--standalone", "--ignore-formatted", *named, *features]

    def serve_command(self) -> list[str]:
        return [*MOLDAU, "serve", str(self.properties)]


class MoldauGuest(Moldau):
    """A broker of this checkout, and nothing else, in somebody else's cluster."""

    def __init__(self, directory: Path, port: int, controller_port: int) -> None:
        super().__init__(directory, port)
        self.properties.write_text(GUEST_PROPERTIES.format(port=port, controller_port=controller_port, data=self.data))

    def format_command(self) -> list[str]:
        return [*MOLDAU, "format", "-t", CLUSTER_ID, "-c", str(self.properties)]


class Running:
    """A broker that somebody else runs: only its address is known."""

    name = "running"
    node_count = 1
    directories: tuple[Path, ...] = ()

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap


CLUSTER_ID = "bW9sZGF1LWNvbmZvcm1hbg"
MOLDAU = (sys.executable, "-m", "moldau.broker.cli")
