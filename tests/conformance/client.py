"""A client under test: its driver process, and the operations that every driver offers under one name.

A driver is a program in the client's own language. It reads one operation a line, `{"op": name, "args": {...}}`, and
answers `{"result": ...}`, `{"refused": KAFKA_ERROR_NAME}` (or `{"refused_code": number}`), `{"unavailable": reason}` or
`{"crashed": text}`. So each scenario is written once, and what differs between two cells of a row is the client alone.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, cast

from moldau.protocol.errors import ErrorCode
from tests.conformance.outcome import Failed, Refused, Unavailable
from tests.conformance.record import Json, Record, from_wire, to_wire

Pair = tuple[str, int]
NOT_YET = (
    "COORDINATOR_LOAD_IN_PROGRESS",
    "COORDINATOR_NOT_AVAILABLE",
    "GROUP_LOAD_IN_PROGRESS",
    "LEADER_NOT_AVAILABLE",
    "NOT_COORDINATOR",
    "NOT_LEADER_FOR_PARTITION",
    "NOT_LEADER_OR_FOLLOWER",
)


class Client:
    """One driver process; every call waits for its answer, at most `timeout_s`."""

    def __init__(self, name: str, command: Sequence[str], log: Path, timeout_s: float = 180) -> None:
        self.name = name
        self._log: IO[bytes] = log.open("ab")
        self._timeout_s = timeout_s
        self.patience_s = 60.0
        # A session of its own, so that what the driver has started ends with it.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, bufsize=0, start_new_session=True
        )
        self._pending = bytearray()
        self._selector = selectors.DefaultSelector()
        assert self._process.stdout is not None
        self._selector.register(self._process.stdout, selectors.EVENT_READ)
        hello = cast("dict[str, Json]", self.call("hello"))
        self.version = str(hello["version"])
        self.lacks = cast("dict[str, str]", hello["lacks"])

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        """Kills the driver, so that its members leave no group: to the broker they have died."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._selector.close()
        self._log.close()

    def signal(self, number: signal.Signals) -> None:
        os.killpg(self._process.pid, number)

    def call(self, op: str, **args: Json) -> Json:
        """Asks again while the broker says "not yet": a client's patience differs, what we ask for does not."""
        deadline = time.monotonic() + self.patience_s
        while True:
            try:
                return self._call(op, args)
            except Refused as refused:
                if refused.error not in NOT_YET or time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def call_once(self, op: str, **args: Json) -> Json:
        """For what must not be done twice: the first refusal is the answer."""
        return self._call(op, args)

    def _call(self, op: str, args: dict[str, Json]) -> Json:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"op": op, "args": args}).encode() + b"\n")
        except BrokenPipeError:
            raise Failed(f"{op}: the driver has died") from None
        reply = json.loads(self._read_line(op))
        if "refused" in reply:
            raise Refused(reply["refused"], reply.get("text", ""))
        if "refused_code" in reply:  # of a client that knows no names
            raise Refused(ErrorCode(reply["refused_code"]).name, reply.get("text", ""))
        if "unavailable" in reply:
            raise Unavailable(reply["unavailable"])
        if "crashed" in reply:
            self._log.write(str(reply.get("text", "")).encode())
            raise Failed(f"{op}: {reply['crashed']}")
        return cast("Json", reply["result"])

    def _read_line(self, op: str) -> bytes:
        assert self._process.stdout is not None
        while (end := self._pending.find(b"\n")) < 0:
            if not self._selector.select(self._timeout_s):
                self._process.kill()
                raise Failed(f"{op}: no answer within {self._timeout_s:.0f} s")
            piece = self._process.stdout.read(1 << 20)
            if not piece:
                raise Failed(f"{op}: the driver has died")
            self._pending += piece
        line = bytes(self._pending[:end])
        del self._pending[: end + 1]
        return line

    # Records

    def produce(
        self, topic: str, records: Iterable[Record], *, codec: str = "none", acks: str = "all", idempotent: bool = False
    ) -> list[int]:
        """Returns the offset of each record in order, -1 if the client cannot tell."""
        wire: list[Json] = [to_wire(record) for record in records]
        offsets = self.call("produce", topic=topic, records=wire, codec=codec, acks=acks, idempotent=idempotent)
        return cast("list[int]", offsets)

    def consume(
        self,
        topic: str,
        *,
        count: int,
        partition: int = 0,
        offset: int = 0,
        reset: str = "earliest",
        isolation: str | None = None,
        wait_s: int = 60,
    ) -> list[Record]:
        """Reads `count` records from `offset`, or fewer when the client waited `wait_s` in vain.

        `isolation` is read_committed or read_uncommitted; None: the client's default.
        """
        where: dict[str, Json] = {"topic": topic, "partition": partition, "offset": offset}
        read = self.call("consume", **where, count=count, reset=reset, isolation=isolation, wait_s=wait_s)
        assert isinstance(read, list)
        return [from_wire(wire) for wire in read]

    # Topics

    def create_topic(
        self, topic: str, partitions: int = 1, *, replicas: int = 1, configs: dict[str, str] | None = None
    ) -> None:
        given = cast("Json", configs or {})
        self.call("create_topic", topic=topic, partitions=partitions, replicas=replicas, configs=given)

    def delete_topic(self, topic: str) -> None:
        self.call("delete_topic", topic=topic)

    def list_topics(self) -> list[str]:
        return cast("list[str]", self.call("list_topics"))

    def describe_topic(self, topic: str) -> Json:
        return self.call("describe_topic", topic=topic)

    def create_partitions(self, topic: str, total: int) -> None:
        self.call("create_partitions", topic=topic, total=total)

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        low = self.call("delete_records", topic=topic, partition=partition, before_offset=before_offset)
        return cast("int", low)

    # Configurations

    def describe_configs(self, kind: str, name: str) -> dict[str, dict[str, Json]]:
        return cast("dict[str, dict[str, Json]]", self.call("describe_configs", kind=kind, name=name))

    def alter_configs(self, kind: str, name: str, configs: dict[str, str]) -> None:
        self.call("alter_configs", kind=kind, name=name, configs=cast("Json", configs))

    def incremental_alter(self, kind: str, name: str, *changes: tuple[str, str, str]) -> None:
        """Each change is (set|delete|append|subtract, name, value)."""
        self.call("incremental_alter", kind=kind, name=name, changes=[list(change) for change in changes])

    # Groups and offsets

    def list_groups(self) -> list[str]:
        return cast("list[str]", self.call("list_groups"))

    def describe_group(self, group: str) -> dict[str, Json]:
        return cast("dict[str, Json]", self.call("describe_group", group=group))

    def delete_group(self, group: str) -> None:
        self.call("delete_group", group=group)

    def alter_offsets(self, group: str, offsets: dict[Pair, int]) -> None:
        self.call("alter_offsets", group=group, offsets=[[topic, part, at] for (topic, part), at in offsets.items()])

    def fetch_offsets(self, group: str) -> dict[Pair, int]:
        rows = cast("list[tuple[str, int, int]]", self.call("fetch_offsets", group=group))
        return {(topic, partition): offset for topic, partition, offset in rows}

    def delete_offsets(self, group: str, topic: str, partition: int) -> None:
        self.call("delete_offsets", group=group, topic=topic, partition=partition)

    def list_offsets(self, topic: str, partition: int, at: str | int) -> int:
        """`at` is a time in milliseconds, or earliest, latest, last-stable or max-timestamp."""
        return cast("int", self.call("list_offsets", topic=topic, partition=partition, at=at))
