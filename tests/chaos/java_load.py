"""Kafka's own Java producer beside the other load: batches of records by ProducerPerformance, one run after another."""

from __future__ import annotations

import re
import subprocess
import threading
from pathlib import Path

from tests.conformance.toolchain import Toolchain

RECORDS_EACH = 4000
RATE = 400
PATIENCE_S = 300
CLASS = "org.apache.kafka.tools.ProducerPerformance"

TRANSACTIONAL = ("--transactional-id", "chaos-java", "--transaction-duration-ms", "100")


class JavaLoad(threading.Thread):
    """Idempotent, acks=all, in transactions if wanted; what it says it has sent must be there exactly once."""

    topic = "chaos-java"

    def __init__(self, bootstrap: str, toolchain: Toolchain, log: Path, *, is_transactional: bool = False) -> None:
        super().__init__(name="java", daemon=True)
        self.sent_count = 0
        self.problems: list[str] = []
        self._is_ending = False
        self._log = log
        properties = (f"bootstrap.servers={bootstrap}", "acks=all", "enable.idempotence=true")
        patience = ("delivery.timeout.ms=180000", "request.timeout.ms=5000", "retry.backoff.ms=20", "linger.ms=2")
        reconnecting = ("reconnect.backoff.ms=10", "reconnect.backoff.max.ms=200")
        size = ("--num-records", str(RECORDS_EACH), "--record-size", "100", "--throughput", str(RATE))
        transactions = TRANSACTIONAL if is_transactional else ()
        producer = (*transactions, "--producer-props", *properties, *patience, *reconnecting)
        self._command = [*toolchain.java_command("-Xmx128m"), CLASS, "--topic", self.topic, *size, *producer]

    def finish(self) -> None:
        self._is_ending = True
        self.join(PATIENCE_S)

    def run(self) -> None:
        while not self._is_ending:
            done = subprocess.run(self._command, capture_output=True, text=True, timeout=PATIENCE_S)
            said = done.stdout + done.stderr
            with self._log.open("a") as log:
                log.write(said)
            self.sent_count += RECORDS_EACH
            if done.returncode != 0 or re.search(r"Exception", done.stdout) is not None:
                self.problems.append(f"the Java producer: {said[-400:]}")
                return
