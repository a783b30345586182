"""What a scenario of Apache Kafka's command line tools has in hand."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.conformance.outcome import Facts, Failed, Unavailable
from tests.conformance.toolchain import Missing, Toolchain

TOOLS = "org.apache.kafka.tools."
CLASSES = {
    "kafka-topics": TOOLS + "TopicCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-producer": TOOLS + "ConsoleProducer",
    "kafka-console-consumer": TOOLS + "consumer.ConsoleConsumer",
    "kafka-consumer-groups": TOOLS + "consumer.group.ConsumerGroupCommand",
    "kafka-share-groups": TOOLS + "consumer.group.ShareGroupCommand",
    "kafka-streams-groups": TOOLS + "streams.StreamsGroupCommand",
    "kafka-groups": TOOLS + "GroupsCommand",
    "kafka-get-offsets": TOOLS + "GetOffsetShell",
    "kafka-delete-records": TOOLS + "DeleteRecordsCommand",
    "kafka-log-dirs": TOOLS + "LogDirsCommand",
    "kafka-broker-api-versions": TOOLS + "BrokerApiVersionsCommand",
    "kafka-producer-perf-test": TOOLS + "ProducerPerformance",
    "kafka-consumer-perf-test": TOOLS + "ConsumerPerformance",
    "kafka-e2e-latency": TOOLS + "EndToEndLatency",
    "kafka-verifiable-producer": TOOLS + "VerifiableProducer",
    "kafka-verifiable-consumer": TOOLS + "VerifiableConsumer",
    "kafka-dump-log": TOOLS + "DumpLogSegments",
    "kafka-metadata-quorum": TOOLS + "MetadataQuorumCommand",
    "kafka-features": TOOLS + "FeatureCommand",
    "kafka-cluster": TOOLS + "ClusterTool",
    "kafka-leader-election": TOOLS + "LeaderElectionCommand",
    "kafka-reassign-partitions": TOOLS + "reassign.ReassignPartitionsCommand",
    "kafka-transactions": TOOLS + "TransactionsCommand",
    "kafka-delegation-tokens": TOOLS + "DelegationTokenCommand",
    "kafka-metadata-shell": "org.apache.kafka.shell.MetadataShell",
}


class Toolbox:
    """`data` are the log directories of all nodes, none if nobody can look; `directory` is for small files."""

    def __init__(
        self,
        toolchain: Toolchain,
        bootstrap: str,
        scenario: str,
        directory: Path,
        data: Sequence[Path] = (),
        node_count: int = 1,
    ) -> None:
        self.facts: Facts = {}
        self.directory = directory
        self.node_count = node_count
        self._toolchain = toolchain
        self._bootstrap = bootstrap
        self._scenario = scenario
        self._data = data

    @property
    def bootstrap(self) -> str:
        return self._bootstrap

    def files(self) -> Path:
        """A directory for files of this scenario."""
        place = self.directory / self._scenario
        place.mkdir(parents=True, exist_ok=True)
        return place

    def name(self, suffix: str = "t") -> str:
        return f"{self._scenario}.{suffix}"

    def observe(self, name: str, value: object) -> None:
        self.facts[name] = value

    def replica(self, topic: str, partition: int = 0) -> Path:
        """The partition's directory on one of the nodes that have it."""
        if not self._data:
            raise Unavailable("the broker's files cannot be looked into")
        return next(path for data in self._data if (path := data / f"{topic}-{partition}").is_dir())

    def run(self, tool: str, *words: str, given: str = "", status: int = 0, timeout_s: float = 240) -> str:
        """What the tool prints on stdout when it talks to the broker; it must end with `status`."""
        to_broker = ("--bootstrap-server", self._bootstrap)
        # The tool's subcommand stands first.
        said = [*words, *to_broker] if tool == "kafka-cluster" else [*to_broker, *words]
        return self.run_offline(tool, *said, given=given, status=status, timeout_s=timeout_s)

    @contextmanager
    def begun(self, tool: str, *words: str) -> Iterator[None]:
        """The tool runs beside what follows, and is killed at its end: it closes nothing."""
        try:
            command = [*self._toolchain.java_command(), CLASSES[tool], "--bootstrap-server", self._bootstrap, *words]
        except Missing as missing:
            raise Unavailable(str(missing)) from None
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield
        finally:
            process.kill()
            process.wait()

    def run_offline(self, tool: str, *words: str, given: str = "", status: int = 0, timeout_s: float = 240) -> str:
        try:
            command = [*self._toolchain.java_command(), CLASSES[tool], *words]
        except Missing as missing:
            raise Unavailable(str(missing)) from None
        try:
            done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise Failed(f"{tool} {' '.join(words)} has not ended within {timeout_s:.0f} s") from None
        if done.returncode != status:
            said = (done.stdout[-500:] + done.stderr[-700:]).strip()
            raise Failed(f"{tool} {' '.join(words)} ended with status {done.returncode}: {said}")
        return done.stdout

    # Steps that several scenarios share

    def create_topic(self, partitions: int = 1, suffix: str = "t") -> str:
        topic = self.name(suffix)
        self.run("kafka-topics", "--create", "--topic", topic, "--partitions", str(partitions))
        return topic

    def send_lines(self, topic: str, *lines: str, codec: str = "none") -> None:
        text = "".join(line + "\n" for line in lines)
        # One batch, however long the producer takes to read the lines: it is closed after the last.
        words = ("--topic", topic, "--compression-codec", codec, "--timeout", "60000")
        self.run("kafka-console-producer", *words, given=text)

    def read_lines(self, topic: str, count: int, *options: str) -> list[str]:
        words = ["--topic", topic, "--max-messages", str(count), "--timeout-ms", "20000", *options]
        return self.run("kafka-console-consumer", *words).splitlines()
