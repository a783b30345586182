"""The runbook for slow requests: its metrics and waits exist, and its commands run against a node."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from moldau.broker.metrics.catalogue import metrics
from moldau.broker.runtime import pending

PAGE = Path(__file__).parents[3] / "docs" / "latency.md"
TEXT = PAGE.read_text("utf-8")
BLOCKS = re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)
OF_KAFKA = "kafka-configs.sh"
"""This command needs Java: `test_slow_requests.py` changes the same setting by the same request."""


def test_every_metric_of_the_page_exists() -> None:
    named = set(re.findall(r"\b(?:kafka|moldau|process)_[a-z0-9_]+[a-z0-9]\b", TEXT))
    known = set(metrics())
    for metric in metrics().values():
        if metric.kind in ("histogram", "summary"):
            known |= {f"{metric.name}_{suffix}" for suffix in ("bucket", "sum", "count")}
    prefixes = {"kafka_network_requestmetrics", "moldau_event_loop", "kafka_log_logflushstats_logflushrateandtimems"}
    assert named - known - prefixes == set()
    shorter = re.findall(r"`([a-z]+timems)`", TEXT)
    assert len(shorter) >= 5 and all(f"kafka_network_requestmetrics_{each}" in known for each in shorter)


def test_every_cause_of_a_wait_is_explained() -> None:
    causes = {
        value
        for name, value in vars(pending).items()
        if name.isupper() and isinstance(value, str) and value and name != "OTHER"
    }
    rows = "".join(line for line in TEXT.splitlines() if line.startswith("| `"))
    assert len(causes) > 8 and {each for each in causes if f"`{each}`" not in rows} == set()


@pytest.mark.processes
def test_the_commands_run(tmp_path: Path) -> None:
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    client, controller, http = (probe.getsockname()[1] for probe in probes)
    for probe in probes:
        probe.close()
    addresses = f"PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}"
    settings = (f"listeners={addresses}", f"moldau.http.listener=http://127.0.0.1:{http}", "moldau.slow.request.ms=0")
    command = [sys.executable, "-m", "moldau", "serve", "--data", str(tmp_path)]
    command += [word for each in settings for word in ("--override", each)]
    log = tmp_path / "log"
    with log.open("wb") as stderr:
        node = subprocess.Popen(command, cwd=PAGE.parents[1], stderr=stderr)
    try:
        count = produced(client, log)
        for block in BLOCKS:
            program = block.split()[0]
            if program == OF_KAFKA or shutil.which(program) is None:
                continue
            shown = block.replace(":9464", f":{http}").replace(":9092", f":{client}")
            said = subprocess.run(
                ["bash", "-c", f"set -o pipefail\n{shown}"], capture_output=True, text=True, timeout=60
            )
            assert said.returncode == 0 and said.stdout and not said.stderr, (block, said)
            if block is BLOCKS[0]:
                rows = [line.split() for line in said.stdout.splitlines()]
                total = next(row for row in rows if any("totaltimems" in word for word in row))
                assert float(total[0]) > 0 and int(total[2]) == count, said.stdout
    finally:
        node.terminate()
        node.wait(20)
    assert "partitions=orders-0" in slow_produces(log)[0]


def slow_produces(log: Path) -> list[str]:
    return [line for line in log.read_text().splitlines() if "slow_request api=Produce" in line]


def produced(port: int, log: Path) -> int:
    """Create a topic, which waits for the controller, and produce ten records, and further ones until the log has a
    line about one of them: the lines of a second may all be about other requests. Returns the number of records.
    """
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})
    admin.create_topics([NewTopic("orders", num_partitions=1, replication_factor=1)])["orders"].result(60)
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}", "linger.ms": 0})
    began = time.monotonic()
    count = 0
    while count < 10 or not slow_produces(log):
        producer.produce("orders", b"x")
        assert producer.flush(60) == 0
        assert time.monotonic() - began < 60
        count += 1
    return count
