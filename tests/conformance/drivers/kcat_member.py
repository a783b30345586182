"""A member of a group that is a kcat process, watched through what it prints."""

from __future__ import annotations

import re
import signal
import subprocess
import threading

from tests.conformance.drivers.kcat_output import FORMAT, records_in
from tests.conformance.drivers.librdkafka import STRATEGIES
from tests.conformance.record import Json, to_wire

PLACE = re.compile(r"([\w.-]+) \[(\d+)\]")


class KcatMember:
    """`command` is kcat with address and group; records come on its stdout, rebalances on its stderr."""

    def __init__(
        self, command: list[str], topic: str, strategy: str, instance_id: str | None, session_timeout_ms: int
    ) -> None:
        settings = {
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": "200",
            "partition.assignment.strategy": STRATEGIES[strategy],
            "session.timeout.ms": str(session_timeout_ms),
            "heartbeat.interval.ms": "500",
        }
        if instance_id is not None:
            settings["group.instance.id"] = instance_id
        options = [word for name, value in settings.items() for word in ("-X", f"{name}={value}")]
        self._process = subprocess.Popen(
            [*command, "-u", "-f", FORMAT, *options, topic],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
        self._lock = threading.Lock()
        self._output = bytearray()
        self._held: set[tuple[str, int]] = set()
        self._revoked: list[tuple[str, int]] = []
        self._rebalances = 0
        threading.Thread(target=self._read_records, daemon=True).start()
        threading.Thread(target=self._read_rebalances, daemon=True).start()

    def _read_records(self) -> None:
        assert self._process.stdout is not None
        while piece := self._process.stdout.read(1 << 16):
            with self._lock:
                self._output += piece

    def _read_rebalances(self) -> None:
        assert self._process.stderr is not None
        for line in iter(self._process.stderr.readline, b""):
            text = line.decode(errors="replace")
            places = {(topic, int(partition)) for topic, partition in PLACE.findall(text.partition(": ")[2])}
            if "assign" in text:
                self._rebalances += 1
                self._held |= places
            elif "revoke" in text:
                self._revoked += sorted(places)
                self._held -= places

    def state(self) -> dict[str, object]:
        with self._lock:
            records: list[Json] = [to_wire(record) for record in records_in(self._output)]
        revoked, self._revoked = self._revoked, []
        held = sorted(self._held)
        return {"assignment": held, "records": records, "revoked": revoked, "rebalances": self._rebalances}

    def close(self) -> None:
        self._process.send_signal(signal.SIGINT)
        self._process.wait(timeout=30)
