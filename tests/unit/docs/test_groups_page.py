"""The page on groups: its queue runs as it stands there, with dead letters as its commands prepare them; its names."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from moldau.broker.cli import main
from moldau.broker.config.catalogue import broker_catalogue, group_catalogue, topic_catalogue
from moldau.kraft.features import DEFAULT_LEVELS
from moldau.testing.ports import free_ports

TEXT = (Path(__file__).parents[3] / "docs" / "groups.md").read_text("utf-8")
(PROGRAM,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
(PRINTED,) = re.findall(r"^    (\[\(.*\)\])$", TEXT, re.MULTILINE)
FORMAT, SERVE = (shlex.split(line) for line in re.findall(r"^    moldau ((?:format|serve) .*)$", TEXT, re.MULTILINE))
LETTERS = {"errors.deadletterqueue.topic.name": "dlq.jobs", "errors.deadletterqueue.copy.record.enable": "true"}


def until_created(topic: str, admin: AdminClient) -> None:
    deadline = time.monotonic() + 30
    while topic not in admin.list_topics(timeout=10).topics:
        assert time.monotonic() < deadline, f"{topic} is not created"
        time.sleep(0.1)


@pytest.mark.processes
def test_the_queue_runs_and_what_is_rejected_is_a_dead_letter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(FORMAT) == 0
    clients, controller = free_ports(2)
    listeners = f"listeners=PLAINTEXT://127.0.0.1:{clients},CONTROLLER://127.0.0.1:{controller}"
    command = [sys.executable, "-m", "moldau", *SERVE, "--override", listeners, "--greeting", "json"]
    node = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert node.stdout is not None and json.loads(node.stdout.readline())["listeners"]
        program = PROGRAM.replace("127.0.0.1:9092", f"127.0.0.1:{clients}")
        settings = '"share.delivery.count.limit": "3"'
        assert settings in program
        program = program.replace(settings, f"{settings}, **{LETTERS!r}")
        said = subprocess.check_output([sys.executable, "-c", program], text=True, timeout=90)
        assert said.strip() == PRINTED
        servers = f"127.0.0.1:{clients}"
        until_created("dlq.jobs", AdminClient({"bootstrap.servers": servers}))
        reader = Consumer({"bootstrap.servers": servers, "group.id": "letters", "auto.offset.reset": "earliest"})
        reader.subscribe(["dlq.jobs"])
        (letter,) = reader.consume(1, timeout=30)
        reader.close()
        assert letter.value() == b"nonsense"
    finally:
        node.terminate()
        node.wait(20)


def test_the_settings_exist() -> None:
    known = {*broker_catalogue(), *topic_catalogue(), *group_catalogue(), *DEFAULT_LEVELS}
    named = set(re.findall(r"[`\" ]((?:group|share|errors|consumer|streams)\.[a-z.]+[a-z])[`=\"]", TEXT))
    of_clients = {
        "group.protocol",
        "group.remote.assignor",
        "group.id",
        "group.instance.id",
        "share.acknowledgement.mode",
    }
    assert len(named) > 15 and named - of_clients <= known, named - of_clients - known
