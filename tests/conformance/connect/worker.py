"""A worker of Kafka Connect in distributed mode: a Java process, and what its REST interface says."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from tests.conformance.java_process import JavaProcess
from tests.conformance.outcome import Failed
from tests.conformance.record import Json
from tests.conformance.secured.access import Access
from tests.conformance.toolchain import Toolchain

REST_S = 60.0
"""For a worker to start, or for a rebalance to end, while it refuses requests."""
HEAP = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
CLIENTS = ("", "producer.", "consumer.", "admin.")
"""The prefixes of the clients that a worker has: its own, and those of its tasks."""
CONVERTER = "org.apache.kafka.connect.json.JsonConverter"
PROPERTIES = """\
bootstrap.servers={bootstrap}
group.id=connect
listeners=http://127.0.0.1:{port}
exactly.once.source.support=enabled
consumer.isolation.level=read_committed
key.converter={converter}
value.converter={converter}
key.converter.schemas.enable=false
value.converter.schemas.enable=false
config.storage.topic=connect-configs
config.storage.replication.factor=3
offset.storage.topic=connect-offsets
offset.storage.replication.factor=3
offset.storage.partitions=4
status.storage.topic=connect-status
status.storage.replication.factor=3
status.storage.partitions=4
offset.flush.interval.ms=1000
session.timeout.ms=6000
heartbeat.interval.ms=1500
scheduled.rebalance.max.delay.ms=2000
plugin.discovery=service_load
"""


class Worker(JavaProcess):
    """It serves once its REST interface answers."""

    def __init__(self, name: str, toolchain: Toolchain, access: Access, directory: Path, port: int) -> None:
        self.address = f"127.0.0.1:{port}"
        """Its id in the states of connectors and tasks."""
        properties = directory / f"{name}.properties"
        text = PROPERTIES.format(bootstrap=access.bootstrap, port=port, converter=CONVERTER)
        properties.write_text(text + access.lines_for(*CLIENTS))
        main = "org.apache.kafka.connect.cli.ConnectDistributed"
        super().__init__(name, [*toolchain.java_command(*HEAP), main, str(properties)], directory)

    def ask(self, method: str, path: str, body: Mapping[str, str] | None = None) -> Json:
        """A request that is repeated until the worker serves and no rebalance refuses it. Raises `Failed`."""
        request = urllib.request.Request(
            f"http://{self.address}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        deadline = time.monotonic() + REST_S
        while True:
            self.check()
            try:
                with urllib.request.urlopen(request, timeout=REST_S) as answer:
                    found: Json = json.loads(answer.read() or b"null")
                    return found
            except urllib.error.HTTPError as error:
                refused = f"{error.code} {error.read().decode(errors='replace')[:300]}"
            except (OSError, http.client.HTTPException) as error:
                refused = str(error)
            if time.monotonic() > deadline:
                raise Failed(f"{method} {path} at {self.name}: {refused}; {self.last_lines()}")
            time.sleep(0.3)

    def running_tasks(self, connector: str) -> set[str]:
        """The addresses of the workers that run the connector's tasks."""
        status = self.ask("GET", f"/connectors/{connector}/status")
        assert isinstance(status, dict) and isinstance(status["tasks"], list)
        tasks = [task for task in status["tasks"] if isinstance(task, dict)]
        return {str(task["worker_id"]) for task in tasks if task["state"] == "RUNNING"}
