"""kcat as a driver: one process an operation, its output parsed by lengths."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator

from tests.conformance.drivers.kcat_member import KcatMember
from tests.conformance.drivers.kcat_output import FORMAT, records_in
from tests.conformance.drivers.librdkafka import error_name
from tests.conformance.drivers.serve import serve
from tests.conformance.outcome import Refused
from tests.conformance.record import Json, Record, from_wire, to_wire

NO_CODEC = "none"
END_OF_KEY, END_OF_RECORD = b"\x1f", b"\x1e"

LACKS = {
    "timestamps": "kcat cannot choose a timestamp",
    "binary": "kcat takes records as delimited text",
    "null headers": "kcat cannot send a header without a value",
    "empty keys": "kcat cannot tell an empty key from none",
    "null records": "kcat cannot send a record without key and value",
    "whole batches": "kcat is called once for each kind of record",
    "exactly once on rebalance": "kcat commits on a timer",
    "transactions": "kcat has no transactional producer",
}


def runs(records: list[Record]) -> Iterator[list[Record]]:
    """Neighbours that one call of kcat can send: same partition, headers, and kinds of key and value."""
    run: list[Record] = []
    for record in records:
        if run and kind(record) != kind(run[0]):
            yield run
            run = []
        run.append(record)
    if run:
        yield run


def kind(record: Record) -> tuple[object, ...]:
    return (record.partition, record.headers, record.key is None, record.value is None)


class Kcat:
    def __init__(self, program: str, bootstrap: str) -> None:
        self._program = program
        self._bootstrap = bootstrap
        self._members: dict[str, KcatMember] = {}

    def _run(self, *words: str, given: bytes = b"") -> bytes:
        command = [self._program, "-b", self._bootstrap, "-m", "60", *words]
        done = subprocess.run(command, input=given, capture_output=True, timeout=120)
        complaint = done.stderr.decode(errors="replace")
        sys.stderr.write(complaint)
        if done.returncode != 0:
            raise Refused(self._error_in(complaint), complaint.strip())
        return done.stdout

    @staticmethod
    def _error_in(complaint: str) -> str:
        for text, name in (
            ("Message size too large", "MSG_SIZE_TOO_LARGE"),
            ("Offset out of range", "_AUTO_OFFSET_RESET"),
            ("no previously committed offset", "_AUTO_OFFSET_RESET"),
            ("failed to validate record", "INVALID_RECORD"),
            ("Unknown topic", "UNKNOWN_TOPIC_OR_PART"),
        ):
            if text.lower() in complaint.lower():
                return error_name(name)
        return "_".join(re.findall(r"[A-Za-z]+", complaint)[-6:]).upper()

    def hello(self) -> object:
        text = subprocess.run([self._program, "-V"], capture_output=True, text=True).stdout
        found = re.search(r"Version (\S+) .*librdkafka (\S+)", text)
        return {"version": f"kcat {found[1]}, librdkafka {found[2]}" if found else "kcat", "lacks": LACKS}

    def create_topic(self, topic: str, partitions: int, replicas: int, configs: dict[str, str]) -> object:
        """kcat has no admin client: the driver of confluent-kafka prepares its topics."""
        from tests.conformance.drivers.confluent_admin import ConfluentAdmin

        return ConfluentAdmin(self._bootstrap).create_topic(topic, partitions, replicas, configs)

    def produce(self, topic: str, records: list[Json], codec: str, acks: str, idempotent: bool) -> object:
        for run in runs([from_wire(wire) for wire in records]):
            words = ["-P", "-t", topic, "-p", str(run[0].partition), "-D", END_OF_RECORD.decode(), "-z", codec]
            words += ["-X", f"acks={acks}", "-X", f"enable.idempotence={str(idempotent).lower()}"]
            words += ["-X", "message.max.bytes=16000000", "-X", "linger.ms=50"]
            for name, value in run[0].headers:
                words += ["-H", f"{name}={(value or b'').decode()}"]
            if run[0].key is not None:
                words += ["-K", END_OF_KEY.decode()]
            if run[0].value is None:
                words.append("-Z")
            given = b"".join(self._line(record) for record in run)
            self._run(*words, given=given)
        return []

    @staticmethod
    def _line(record: Record) -> bytes:
        key = b"" if record.key is None else record.key + END_OF_KEY
        return key + (record.value or b"") + END_OF_RECORD

    def consume(
        self, topic: str, partition: int, offset: int, count: int, reset: str, isolation: str | None, wait_s: int
    ) -> object:
        """kcat waits until all have come."""
        policy = "error" if reset == "none" else reset
        words = ["-C", "-q", "-t", topic, "-p", str(partition), "-o", str(offset), "-c", str(count), "-f", FORMAT]
        words += ["-X", f"topic.auto.offset.reset={policy}", "-X", "fetch.message.max.bytes=16000000"]
        words += [] if isolation is None else ["-X", f"isolation.level={isolation}"]
        return [to_wire(record) for record in records_in(bytearray(self._run(*words)))]

    def list_topics(self) -> object:
        return sorted(re.findall(r'^  topic "(.*)" with', self._run("-L").decode(), re.MULTILINE))

    def describe_topic(self, topic: str) -> object:
        text = self._run("-L", "-t", topic).decode()
        rows = re.findall(r"partition (\d+), leader (-?\d+), replicas: ([\d,]*), isrs: ([\d,]*)(?:, (.*))?", text)
        failed = re.search(r'topic "[^"]*" with \d+ partitions: (.*)', text)
        if failed and failed[1]:
            raise Refused(self._error_in(failed[1]), failed[1])
        return {
            "partitions": [
                {"id": int(row[0]), "leader": int(row[1]), "replicas": row[2], "isr": row[3], "error": row[4]}
                for row in rows
            ]
        }

    def describe_cluster(self) -> object:
        text = self._run("-L").decode()
        return {
            "nodes": [int(node) for node in re.findall(r"^  broker (\d+) at", text, re.MULTILINE)],
            "controller": [int(node) for node in re.findall(r"broker (\d+) at .* \(controller\)", text)],
        }

    def list_offsets(self, topic: str, partition: int, at: str | int) -> object:
        special = {"earliest": -2, "latest": -1, "max-timestamp": -3}
        where = special[at] if isinstance(at, str) else at
        answer = self._run("-Q", "-t", f"{topic}:{partition}:{where}").decode()
        found = re.search(r"offset (-?\d+)", answer)
        return int(found[1]) if found else answer

    def member_open(
        self, member: str, group: str, topic: str, strategy: str, instance_id: str | None, session_timeout_ms: int
    ) -> object:
        self._members[member] = KcatMember(
            [self._program, "-b", self._bootstrap, "-G", group],
            topic,
            strategy,
            instance_id,
            session_timeout_ms,
        )
        return None

    def member_state(self, member: str) -> object:
        return self._members[member].state()

    def member_close(self, member: str) -> object:
        self._members.pop(member).close()
        return None


if __name__ == "__main__":
    serve(Kcat(sys.argv[1], sys.argv[2]))
