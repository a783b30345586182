"""Faults as JSON describes them: what is read, what is refused, and which requests they meet."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.broker.faults.fault import Fault, FaultSubject
from moldau.broker.faults.faults import (
    FAULTS_LENGTH_MAX,
    FAULTS_MAX,
    TEXT_LENGTH_MAX,
    TIMELINE_LENGTH_MAX,
    TIMELINE_MAX,
    Faults,
)
from moldau.broker.faults.messages import InvalidFault, message_from_json
from moldau.protocol.messages.fetch import FetchResponse
from moldau.protocol.messages.metadata import MetadataResponse
from moldau.protocol.messages.produce import ProduceResponse

APIS = {"Produce": ProduceResponse, "Fetch": FetchResponse, "Metadata": MetadataResponse}
PRODUCE = FaultSubject("Produce", "app", topics={"t": frozenset((0, 1))}, groups=frozenset(("g",)))


def fault(described: object) -> Fault:
    return Fault.read(1, described, APIS)


@pytest.mark.parametrize(
    ("described", "says"),
    [
        ([], "must be an object"),
        ({"do": {"reset": True}, "onn": {}}, "onn is unknown: here are name, scope, when, do, ends_after_ms"),
        ({}, "do is missing"),
        ({"do": {}}, "do has 0 actions"),
        ({"do": {"reset": True, "delay_ms": 1}}, "do has 2 actions"),
        ({"do": {"reset": 1}}, "must be true"),
        ({"do": {"explode": True}}, "do.explode is unknown"),
        ({"do": {"error": "NO_SUCH"}}, "the name of an error"),
        ({"do": {"error": "NONE"}}, "the name of an error"),
        ({"do": {"delay_ms": -1}}, "a number from 0"),
        ({"do": {"answer": {}}}, "do.answer needs scope.api"),
        ({"do": {"answer": {"errorcode": 1}}, "scope": {"api": "Produce"}}, "do.answer.errorcode is unknown"),
        ({"do": {"reset": True, "until": {}}}, "do.until goes with do.hold"),
        ({"do": {"reset": True}, "scope": {"api": "Produced"}}, "here are Produce, Fetch, Metadata"),
        ({"do": {"reset": True}, "scope": {"topic": 5}}, "must be of the type str"),
        ({"do": {"reset": True}, "scope": {"partition": 5}}, "scope.partition needs scope.topic"),
        ({"do": {"reset": True}, "scope": {"disk": "sync"}}, "do.reset is unknown for this scope: here are delay_ms"),
        (
            {"do": {"error": "EIO"}, "scope": {"disk": "sync", "topic": "t"}},
            "scope.disk is about files, and scope.topic about",
        ),
        ({"do": {"error": "EIO"}, "scope": {"disk": "write"}}, "here are append, read, sync"),
        ({"do": {"error": "EPERM"}, "scope": {"disk": "sync"}}, "for files here are EIO"),
        ({"do": {"delay_ms": 5}, "scope": {"disk": "append"}}, "ends in the page cache"),
        ({"do": {"reset": True}, "scope": {"path": "x"}}, "scope.path needs scope.disk"),
        ({"do": {"reset": True}, "when": {"times": 0}}, "a number from 1 on"),
        ({"do": {"reset": True}, "when": {"once": True, "times": 2}}, "when has once and times"),
        ({"do": {"reset": True}, "when": {"probability": 2}}, "at most 1"),
        ({"do": {"reset": True}, "when": {"probability": 0.5, "seed": "x"}}, "when.seed"),
        ({"do": {"reset": True}, "when": {"often": True}}, "when.often is unknown"),
        ({"do": {"reset": True}, "ends_after_ms": 0}, "ends_after_ms"),
        ({"do": {"reset": True}, "name": 7}, "name is 7"),
    ],
)
def test_a_wrong_description_is_refused_with_what_is_possible(described: object, says: str) -> None:
    with pytest.raises(InvalidFault, match=says.replace(".", r"\.")):
        fault(described)


@pytest.mark.parametrize(
    ("scope", "is_met"),
    [
        ({}, True),
        ({"api": "Produce"}, True),
        ({"api": "Fetch"}, False),
        ({"topic": "t"}, True),
        ({"topic": "t", "partition": 1}, True),
        ({"topic": "t", "partition": 2}, False),
        ({"topic": "u"}, False),
        ({"group": "g"}, True),
        ({"transactional_id": "x"}, False),
        ({"client_id": "app"}, True),
        ({"client_id": "ap"}, False),
        ({"from_node": 1}, False),
        ({"from_clients": True}, True),
        ({"listener": "PLAINTEXT"}, False),
        ({"disk": "sync"}, False),
    ],
)
def test_a_scope_has_what_all_of_its_names_fit(scope: dict[str, object], is_met: bool) -> None:
    action = {"error": "EIO"} if "disk" in scope else {"reset": True}
    assert fault({"scope": scope, "do": action}).applies_to(PRODUCE) is is_met


@pytest.mark.parametrize(
    ("trigger", "met"),
    [
        ({}, "yyyyy"),
        ({"every_time": True}, "yyyyy"),
        ({"once": True}, "ynnnn"),
        ({"times": 3}, "yyynn"),
        ({"on_call": 4}, "nnnyn"),
    ],
)
def test_a_trigger_chooses_among_the_requests_of_the_scope(trigger: dict[str, object], met: str) -> None:
    made = fault({"when": trigger, "do": {"reset": True}})
    assert "".join("y" if made.applies_to(PRODUCE) else "n" for _ in met) == met


def test_a_probability_is_drawn_from_the_seed() -> None:
    def drawn(seed: int) -> list[bool]:
        made = fault({"when": {"probability": 0.3, "seed": seed}, "do": {"reset": True}})
        return [made.applies_to(PRODUCE) for _ in range(1000)]

    assert drawn(7) == drawn(7) != drawn(8)
    assert 230 < sum(drawn(7)) < 370


def test_the_same_faults_and_requests_give_the_same_timeline() -> None:
    def lived() -> list[tuple[str, str]]:
        faults = Faults(APIS, iter(range(1000)).__next__)
        faults.add({"when": {"probability": 0.5, "seed": 3, "times": 4}, "do": {"reset": True}})
        faults.add({"scope": {"topic": "t"}, "when": {"on_call": 3}, "do": {"delay_ms": 5}})
        for _ in range(20):
            faults.fault_for(PRODUCE)
        return [(entry.what, entry.text) for entry in faults.timeline() if entry.what.startswith("fault")]

    assert lived() == lived()
    assert sum(what == "fault meets" for what, _ in lived()) == 5


def test_the_first_fault_meets_and_a_used_one_has_ended() -> None:
    faults = Faults(APIS, lambda: 0)
    faults.add({"name": "one", "when": {"once": True}, "do": {"reset": True}})
    faults.add({"name": "two", "do": {"reset": True}})
    names = [met.name for _ in range(3) if (met := faults.fault_for(PRODUCE)) is not None]
    assert names == ["one", "two", "two"]
    assert [each.name for each in faults.in_force] == ["two"]
    assert faults.end(2) is not None and faults.end(2) is None and faults.fault_for(PRODUCE) is None


def test_faults_and_the_timeline_are_bounded() -> None:
    faults = Faults(APIS, lambda: 0)
    script = {"faults": [{"do": {"reset": True}}] * FAULTS_MAX}
    assert len(faults.add_all(script)) == FAULTS_MAX
    with pytest.raises(InvalidFault, match="end some first"):
        faults.add({"do": {"reset": True}})
    for _ in range(TIMELINE_MAX + 5):
        faults.note("request", "")
    assert len(faults.timeline()) == TIMELINE_MAX
    last = faults.timeline()[-1].number
    assert [entry.number for entry in faults.timeline(last - 2)] == [last - 1, last]


def test_a_script_is_in_force_whole_or_not_at_all() -> None:
    faults = Faults(APIS, lambda: 0)
    with pytest.raises(InvalidFault):
        faults.add_all({"faults": [{"do": {"reset": True}}, {"do": {"error": "NO_SUCH"}}]})
    assert faults.in_force == [] and faults.timeline() == []


def test_a_script_that_is_too_long_is_not_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moldau.broker.faults.faults.FAULTS_LENGTH_MAX", 60)
    faults = Faults(APIS, lambda: 0)
    with pytest.raises(InvalidFault, match="end some first"):
        faults.add_all({"faults": [{"do": {"reset": True}}] * 3})
    assert faults.in_force == [] and faults.timeline() == []


# Answers from JSON


def test_an_answer_is_read_by_either_spelling_of_names() -> None:
    answer: Any = message_from_json(
        MetadataResponse,
        {
            "brokers": [{"nodeId": 1, "host": "h", "port": 9}],
            "cluster_id": "c",
            "topics": [{"errorCode": "INVALID_TOPIC_EXCEPTION", "name": None}],
        },
    )
    (broker,) = answer.brokers
    assert (broker.node_id, broker.host, broker.port, broker.rack, answer.cluster_id) == (1, "h", 9, None, "c")
    assert (answer.topics[0].error_code, answer.topics[0].partitions) == (17, [])


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"brokers": 5}, r"do\.answer\.brokers is 5, and must be a list"),
        ({"brokers": [5]}, r"do\.answer\.brokers\[0\] is 5, and must be an object"),
        ({"borkers": []}, r"do\.answer\.borkers is unknown: here are throttle_time_ms, brokers"),
        ({"controllerId": "x"}, "must be of the type INT32"),
        ({"controllerId": True}, "must be of the type INT32"),
        ({"topics": [{"topic_id": "abc"}]}, "16 bytes in base64"),
        ({"topics": [{"topic_id": "!"}]}, "base64"),
        ({"controller_id": None}, "may not be null"),
    ],
)
def test_a_wrong_answer_is_refused_by_the_path_of_the_field(value: object, says: str) -> None:
    with pytest.raises(InvalidFault, match=says):
        message_from_json(MetadataResponse, value)


def test_records_are_given_in_base64() -> None:
    answer: Any = message_from_json(FetchResponse, {"responses": [{"partitions": [{"records": "AAEC"}]}]})
    assert answer.responses[0].partitions[0].records == b"\0\1\2"


def test_faults_and_the_timeline_are_bounded_in_characters() -> None:
    faults = Faults(APIS, lambda: 0)
    long_name = "x" * 1_000_000
    added = []
    with pytest.raises(InvalidFault, match="end some first"):
        for _ in range(100):
            added.append(faults.add({"name": long_name, "do": {"delay_ms": 1}}))
    assert sum(len(repr(each.source)) for each in added) <= FAULTS_LENGTH_MAX
    for _ in range(10_000):
        faults.fault_for(PRODUCE)
    texts = [entry.text for entry in faults.timeline()]
    assert max(map(len, texts)) < 1.1 * TEXT_LENGTH_MAX
    assert sum(map(len, texts)) <= TIMELINE_LENGTH_MAX
    assert texts[-1].endswith("characters)")
    faults.end(added[0].id)
    faults.add({"name": long_name, "do": {"delay_ms": 1}})
