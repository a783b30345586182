"""`moldau serve --control`: the HTTP interface of a real process, its description, and files that fail."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from moldau.broker.faults.control import OPENAPI
from moldau.broker.faults.fault import Action, Scope

ROOT = Path(__file__).parents[4]


class Served:
    """A node in memory that takes faults."""

    def __init__(self, greeting: dict[str, Any], process: subprocess.Popen[str]) -> None:
        self.control: str = greeting["control"]
        (self.bootstrap,) = greeting["listeners"].values()
        self.process = process

    def ask(self, method: str, path: str, body: object = None, content_type: str = "application/json") -> Any:
        """The JSON of the answer, with the status of a refusal."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.control + path, method=method, data=data, headers={"Content-Type": content_type}
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as refusal:
            return json.load(refusal) | {"status": refusal.code}

    def add(self, described: dict[str, Any]) -> int:
        added = self.ask("POST", "/v1/faults", described)
        assert "id" in added, added
        number: int = added["id"]
        return number

    def produce(self, topic: str, value: bytes = b"x", **settings: Any) -> str:
        """The name of the error; empty for none."""
        told: list[str] = []
        producer = Producer({"bootstrap.servers": self.bootstrap, "retries": 0, "linger.ms": 0, **settings})
        producer.produce(topic, value, on_delivery=lambda error, _: told.append(error.name() if error else ""))
        producer.flush(20)
        return told[0]


@contextmanager
def served(*options: str) -> Iterator[Served]:
    command = [sys.executable, "-m", "moldau.broker.cli", "serve", "--port", "0", "--greeting", "json"]
    command += ["--control", "127.0.0.1:0", "--until-eof", *options]
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield Served(json.loads(process.stdout.readline()), process)
    finally:
        process.kill()
        process.communicate(timeout=20)


@pytest.fixture(scope="module")
def node() -> Iterator[Served]:
    with served("--memory") as each:
        yield each


@pytest.fixture(autouse=True)
def _no_faults(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "node" in request.fixturenames:
        request.getfixturevalue("node").ask("DELETE", "/v1/faults")


@pytest.mark.processes
def test_a_fault_is_put_in_force_shown_and_ended(node: Served) -> None:
    assert node.produce("t") == ""
    number = node.add({"name": "no", "scope": {"api": "Produce"}, "do": {"error": "TOPIC_AUTHORIZATION_FAILED"}})
    assert node.produce("t") == "TOPIC_AUTHORIZATION_FAILED"
    (shown,) = node.ask("GET", "/v1/faults")["faults"]
    assert shown == node.ask("GET", f"/v1/faults/{number}")
    assert (shown["name"], shown["calls"], shown["met"]) == ("no", 1, 1)
    assert node.ask("DELETE", f"/v1/faults/{number}")["id"] == number
    assert node.ask("DELETE", f"/v1/faults/{number}")["status"] == 404
    assert node.produce("t") == ""
    told = [(each["what"], each["text"]) for each in node.ask("GET", "/v1/timeline")["entries"]]
    assert ("fault meets", "no: Produce of client 'rdkafka', t 0") in told
    assert ("fault ends", "no") in told and ("request", "Produce of client 'rdkafka', t 0") in told
    assert node.ask("GET", f"/v1/timeline?after={len(told)}") == {"entries": []}


@pytest.mark.processes
def test_a_fault_ends_by_itself(node: Served) -> None:
    node.add({"scope": {"api": "Produce"}, "do": {"hold": True}, "ends_after_ms": 300})
    assert node.produce("t") == ""
    assert node.ask("GET", "/v1/faults") == {"faults": []}
    fault = {"scope": {"api": "Produce"}, "do": {"hold": True}, "ends_after_ms": 300}
    assert len(node.ask("POST", "/v1/script", {"faults": [fault]})["faults"]) == 1
    assert node.produce("t") == ""


@pytest.mark.processes
@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/v1/faults", {"do": {"explode": True}}, 400),
        ("POST", "/v1/script", {"fault": []}, 400),
        ("GET", "/v1/faults/7000", None, 404),
        ("GET", "/v1/faults/x", None, 400),
        ("GET", "/v1/timeline?after=x", None, 400),
    ],
)
def test_what_is_wrong_is_refused(node: Served, method: str, path: str, body: object, status: int) -> None:
    assert node.ask(method, path, body)["status"] == status


@pytest.mark.processes
def test_a_body_without_its_type_is_refused(node: Served) -> None:
    """A page of another origin can send such a body without being asked."""
    refused = node.ask("POST", "/v1/faults", {"do": {"reset": True}}, content_type="text/plain")
    assert refused["status"] == 400 and "Content-Type" in refused["error"]


@pytest.mark.processes
def test_a_slow_disk_delays_a_read(node: Served) -> None:
    assert node.produce("slow") == ""
    node.add({"scope": {"disk": "read", "path": "slow-0"}, "do": {"delay_ms": 700}, "when": {"once": True}})
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "g"})
    consumer.assign([TopicPartition("slow", 0, 0)])
    message = consumer.poll(10)
    consumer.close()
    assert message is not None and message.error() is None
    assert any("read" in each["text"] for each in node.ask("GET", "/v1/timeline")["entries"])


@pytest.mark.processes
def test_a_full_disk_refuses_records_and_the_node_serves_on(node: Served) -> None:
    assert node.produce("full") == ""
    log = "full-0/00000000000000000000.log"  # The folder has a checkpoint too, which is written some time later.
    node.add({"scope": {"disk": "append", "path": log}, "do": {"error": "ENOSPC"}, "when": {"once": True}})
    assert node.produce("full") != ""
    assert node.produce("full") == ""


@pytest.mark.processes
def test_a_script_holds_from_the_start_and_a_disk_that_fails_stops_the_node(tmp_path: Path) -> None:
    script = tmp_path / "faults.json"
    faults = [{"scope": {"api": "Metadata"}, "when": {"once": True}, "do": {"reset": True}}]
    script.write_text(json.dumps({"faults": faults}))
    with served("--data", str(tmp_path / "data"), "--faults", str(script)) as own:
        assert own.produce("t") == ""
        entries = own.ask("GET", "/v1/timeline")["entries"]
        assert [each["what"] for each in entries if each["what"].startswith("fault")] == [
            "fault begins",
            "fault meets",
            "fault ends",
        ]
        own.add({"scope": {"disk": "sync"}, "do": {"error": "EIO"}})
        own.process.terminate()
        _, log = own.process.communicate(timeout=20)
        assert own.process.returncode == 1 and "(fault fault-2)" in log, log


@pytest.mark.processes
def test_options_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    for options, says in (
        (["--faults", "x.json"], "--faults needs --control"),
        (["--control", "nowhere"], "must be HOST:PORT"),
        (["--control", "127.0.0.1:0", "--faults", str(tmp_path / "none.json")], "cannot be read"),
    ):
        command = [sys.executable, "-m", "moldau.broker.cli", "serve", "--memory", "--port", "0", *options]
        refused = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=20)
        assert refused.returncode == 1 and says in refused.stderr, refused.stderr


def test_the_description_names_every_field_of_scopes_and_actions() -> None:
    schemas: Any = OPENAPI["components"]["schemas"]  # type: ignore[index]
    assert set(schemas["Scope"]["properties"]) == set(Scope.__dataclass_fields__)
    assert set(schemas["Action"]["properties"]) == set(Action.__dataclass_fields__) - {"disk_error"}


@pytest.mark.processes
def test_the_description_is_served(node: Served) -> None:
    assert node.ask("GET", "/openapi.json") == json.loads(json.dumps(OPENAPI))
    assert node.ask("GET", "/v1/node") == {"node_id": 1}
    with pytest.raises(KafkaException):
        Producer({"bootstrap.servers": node.bootstrap}).init_transactions(0.01)


def test_a_name_of_another_site_is_refused(node: Served) -> None:
    request = urllib.request.Request(node.control + "/v1/faults", headers={"Host": "evil.example:80"})
    with pytest.raises(urllib.error.HTTPError) as refusal:
        urllib.request.urlopen(request, timeout=10)
    assert "not served as 'evil.example'" in json.load(refusal.value)["error"]
    port = node.control.rpartition(":")[2]
    named = urllib.request.Request(node.control + "/v1/faults", headers={"Host": f"localhost:{port}"})
    with urllib.request.urlopen(named, timeout=10) as answer:
        assert json.load(answer) == {"faults": []}
