"""What Testcontainers' modules do in the image, without Docker: their start scripts, with the files of the image."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from moldau.testing.ports import free_ports

ROOT: Final = Path(__file__).parents[3]
IMAGE: Final = ROOT / "building" / "image"
CLUSTER_ID: Final = "4L6g3nShT-eMCtK--X86sw"
ON_TWO_PORTS: Final = {
    "KAFKA_LISTENERS": "PLAINTEXT://127.0.0.1:{client},BROKER://127.0.0.1:{broker}",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "BROKER",
    "KAFKA_BROKER_ID": "1",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS": "1",
    "KAFKA_LOG_FLUSH_INTERVAL_MESSAGES": "9223372036854775807",
    "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
}
COMBINED: Final = ON_TWO_PORTS | {
    "KAFKA_LISTENERS": "PLAINTEXT://:{client},BROKER://:{broker},CONTROLLER://:{controller}",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:{controller}",
}
TOLD: Final = "export KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:{client},BROKER://127.0.0.1:{broker}"
STEPS: Final = ("/etc/confluent/docker/configure", "/etc/confluent/docker/launch")
FORMAT: Final = "echo 'kafka-storage format --ignore-formatted {more} -c /etc/kafka/kafka.properties' >> " + STEPS[0]


class Module(NamedTuple):
    """What a module of Testcontainers gives to the container, and the line for which it waits."""

    variables: dict[str, str]
    script: tuple[str, ...]
    waits_for: str
    shell: str = "bash"


MODULES: Final = {
    "Java": Module(
        {**COMBINED, "CLUSTER_ID": CLUSTER_ID, "KAFKA_NODE_ID": "1"},
        (TOLD, "/etc/kafka/docker/run "),
        ".*Transitioning from RECOVERY to RUNNING.*",
    ),
    "Python": Module(
        {**COMBINED, "CLUSTER_ID": CLUSTER_ID, "KAFKA_NODE_ID": "1"},
        (
            "sed -i '/KAFKA_ZOOKEEPER_CONNECT/d' /etc/confluent/docker/configure",
            FORMAT.replace("{more}", f"-t {CLUSTER_ID}"),
            TOLD,
            ". /etc/confluent/docker/bash-config",
            *STEPS,
        ),
        ".*Kafka Server started.*",
        "sh",
    ),
    "Python, with ZooKeeper": Module(
        ON_TWO_PORTS,
        (
            "echo 'clientPort=2181' > zookeeper.properties",
            "zookeeper-server-start zookeeper.properties &",
            "export KAFKA_ZOOKEEPER_CONNECT='localhost:2181'",
            TOLD,
            ". /etc/confluent/docker/bash-config",
            *STEPS,
        ),
        r".*\[KafkaServer id=\d+\] started.*",
        "sh",
    ),
    "Go": Module(
        {**COMBINED, "KAFKA_NODE_ID": "1", "KAFKA_REST_BOOTSTRAP_SERVERS": "PLAINTEXT://0.0.0.0:9093"},
        (
            "source /etc/confluent/docker/bash-config",
            TOLD,
            "sed -i '/KAFKA_ZOOKEEPER_CONNECT/d' /etc/confluent/docker/configure",
            FORMAT.replace("{more}", '-t "$(kafka-storage random-uuid)"'),
            "echo '' > /etc/confluent/docker/ensure",
            *STEPS,
        ),
        ".*Transitioning from RECOVERY to RUNNING.*",
    ),
    "JavaScript": Module(
        {**COMBINED, "CLUSTER_ID": CLUSTER_ID, "KAFKA_NODE_ID": "1"},
        (
            TOLD,
            FORMAT.replace(
                "{more}", f'-t "{CLUSTER_ID}" --add-scram "SCRAM-SHA-256=[name=alice,password=secret-of-a]"'
            ),
            "/etc/confluent/docker/run ",
        ),
        ".*Kafka Server started.*",
    ),
    "Rust": Module(
        {**COMBINED, "CLUSTER_ID": CLUSTER_ID, "KAFKA_LOG_DIRS": "{home}/logs"},
        (TOLD, "/etc/kafka/docker/run "),
        "Kafka Server started",
    ),
}


@pytest.mark.processes
@pytest.mark.parametrize("name", MODULES)
def test_the_start_script_of_a_module_starts_a_node(name: str, tmp_path: Path) -> None:
    from confluent_kafka.admin import AdminClient

    module = MODULES[name]
    shutil.copytree(IMAGE, tmp_path / "image")
    commands = tmp_path / "commands"
    commands.mkdir()
    (commands / "moldau").write_text(f'#!/bin/sh\nexec {sys.executable} -m moldau.broker.cli "$@"\n')
    (commands / "moldau").chmod(0o755)
    client, broker, controller, http = free_ports(4)
    places = {"client": client, "broker": broker, "controller": controller, "home": tmp_path}
    variables = {key: value.format_map(places) for key, value in module.variables.items()}
    script = tmp_path / "testcontainers_start.sh"
    process = subprocess.Popen(
        ["sh", "-c", f"while [ ! -f {script} ]; do sleep 0.05; done; exec {module.shell} {script}"],
        cwd=tmp_path,
        env={
            "PATH": f"{commands}:{tmp_path}/image/usr/local/bin:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "KAFKA_LOG_DIRS": str(tmp_path / "logs"),
            "KAFKA_MOLDAU_HTTP_LISTENER": f"http://127.0.0.1:{http}",
            **variables,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        lines = "\n".join(("#!/bin/bash", *module.script, ""))
        lines = lines.replace("{client}", str(client)).replace("{broker}", str(broker))
        copied = tmp_path / "copied"
        copied.write_text(lines.replace("/etc/", f"{tmp_path}/image/etc/"))
        copied.chmod(0o777)
        copied.rename(script)  # It is there as a whole.
        read = []
        assert process.stdout is not None
        for line in process.stdout:
            read.append(line)
            if re.search(module.waits_for, line):
                break
        else:
            raise AssertionError("".join(read))
        metadata = AdminClient({"bootstrap.servers": f"127.0.0.1:{client}"}).list_topics(timeout=10)
        assert [(each.id, str(each.host), each.port) for each in metadata.brokers.values()] == [
            (1, "localhost", client)
        ]
        os.killpg(process.pid, signal.SIGTERM)
        assert "moldau: stopped" in process.stdout.read()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)


def test_the_files_of_the_image_can_be_run() -> None:
    runnable = {path.name for path in IMAGE.rglob("*") if path.is_file() and os.access(path, os.X_OK)}
    assert runnable == {"configure", "ensure", "kafka-storage", "launch", "run"}
    copied = (ROOT / "Dockerfile").read_text()
    for folder in ("etc/kafka", "etc/confluent", "usr/local/bin/kafka-storage"):
        assert f"building/image/{folder} /{folder}" in copied
