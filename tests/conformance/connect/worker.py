"""A worker of Kafka Connect in distributed mode: a Java process, and what its REST interface says."""

from __future__ import annotations

import http.client
import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from tests.conformance.outcome import Failed
from tests.conformance.record import Json
from tests.conformance.toolchain import Toolchain

STOP_S = 90.0
REST_S = 60.0
"""For a worker to start, or for a rebalance to end, while it refuses requests."""
HEAP = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
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


class Worker:
    """`log` is what it said in all its starts."""

    def __init__(self, name: str, toolchain: Toolchain, bootstrap: str, directory: Path, port: int) -> None:
        self.name = name
        self.address = f"127.0.0.1:{port}"
        """Its id in the states of connectors and tasks."""
        self.log = directory / f"{name}.log"
        properties = directory / f"{name}.properties"
        properties.write_text(PROPERTIES.format(bootstrap=bootstrap, port=port, converter=CONVERTER))
        main = "org.apache.kafka.connect.cli.ConnectDistributed"
        self._command = [*toolchain.java_command(*HEAP), main, str(properties)]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, start_new_session=True)

    def check(self) -> None:
        """Raises `Failed` where it was started and has ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            raise Failed(f"{self.name} ended with status {self._process.returncode}: {self.last_lines()}")

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def stop(self) -> None:
        """SIGTERM. Raises `Failed` where it does not end."""
        if self._process is None:
            return
        process, self._process = self._process, None
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise Failed(f"{self.name} has not stopped {STOP_S:.0f} s after SIGTERM: {self.last_lines()}") from None

    def close(self) -> None:
        """Leaves nothing running."""
        if self._process is not None:
            self.kill()

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

    def last_lines(self, count: int = 8) -> str:
        return "\n".join(line[:300] for line in self.log.read_text(errors="replace").splitlines()[-count:])
