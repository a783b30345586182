"""How two runs of a scenario are held against one another."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from tests.conformance.comparison import (
    OVERLAYS,
    RECORDED,
    Divergence,
    Verdict,
    judge,
    known_divergences,
    leaves,
    record,
    recorded,
)
from tests.conformance.outcome import Outcome, Status
from tests.conformance.plan import Plan

CELL = ("java", "admin-cluster")


def seen(**facts: object) -> Outcome:
    return Outcome(Status.OK, facts=dict(facts))


def test_equal_facts_are_ok() -> None:
    assert judge(CELL, seen(nodes=[1]), seen(nodes=[1]), ()).verdict is Verdict.OK


def test_a_difference_is_named_with_its_path() -> None:
    judgement = judge(CELL, seen(cluster={"nodes": [1]}), seen(cluster={"nodes": [2]}), ())
    assert judgement.verdict is Verdict.DIFFERS
    assert str(judgement.differences[0]) == "cluster.nodes: [1], Apache Kafka: [2]"


def test_a_fact_that_only_one_side_has_is_a_difference() -> None:
    assert judge(CELL, seen(), seen(rack="a"), ()).differences[0].ours == "(absent)"


def test_a_known_divergence_covers_only_the_facts_that_it_names() -> None:
    known = (Divergence("admin-cluster", "meant", facts=("cluster.*",)),)
    apart = seen(cluster={"id": 1})
    assert judge(CELL, apart, seen(cluster={"id": 2}), known).verdict is Verdict.KNOWN
    assert judge(CELL, seen(other=1), seen(other=2), known).verdict is Verdict.DIFFERS


@pytest.mark.parametrize(
    ("theirs", "verdict"),
    [
        (Outcome(Status.FAIL), Verdict.AS_APACHE),
        (Outcome(Status.OK), Verdict.FAIL),
        (None, Verdict.FAIL),
    ],
)
def test_a_failure_counts_unless_apache_kafka_fails_too(theirs: Outcome | None, verdict: Verdict) -> None:
    assert judge(CELL, Outcome(Status.FAIL, "why"), theirs, ()).verdict is verdict


def test_facts_in_a_list_of_objects_have_paths_of_their_own() -> None:
    assert dict(leaves({"a": [{"b": 1}, {"b": 2}], "c": {}})) == {"a.0.b": 1, "a.1.b": 2, "c": {}}


def test_every_known_divergence_names_a_scenario_that_exists() -> None:
    names = Plan.of(None, None, bounded=False).names()
    for divergence in known_divergences():
        assert any(fnmatchcase(name, divergence.scenario) for name in names), divergence.scenario


def test_scenario_names_are_unique() -> None:
    plan = Plan.of(None, None, bounded=False)
    names = [each.name for each in plan.scenarios] + [each.name for each in plan.tools]
    names += [each.name for each in plan.directories if each.side == "moldau"]
    assert len(names) == len(set(names))


def test_three_nodes_are_recorded_as_what_differs_from_one(tmp_path: Path) -> None:
    other, third = ("java", "groups"), ("kcat", "groups")
    record({CELL: seen(nodes=[1]), other: seen(a=1)}, 1, tmp_path)
    record({CELL: seen(nodes=[1, 2, 3]), other: seen(a=1), third: seen(b=2)}, 3, tmp_path)
    assert recorded(1, tmp_path) == {CELL: seen(nodes=[1]), other: seen(a=1)}
    assert recorded(3, tmp_path) == {CELL: seen(nodes=[1, 2, 3]), other: seen(a=1), third: seen(b=2)}
    overlay = json.loads((tmp_path / OVERLAYS[3]).read_text())
    assert {client: sorted(cells) for client, cells in overlay.items()} == {
        "java": ["admin-cluster"],
        "kcat": ["groups"],
    }


def test_what_one_node_does_now_is_not_what_three_did(tmp_path: Path) -> None:
    record({CELL: seen(a=1)}, 1, tmp_path)
    record({CELL: seen(a=1)}, 3, tmp_path)
    record({CELL: seen(a=2)}, 1, tmp_path)
    record({("java", "groups"): seen(b=1)}, 1, tmp_path)
    assert recorded(3, tmp_path)[CELL] == seen(a=1)
    assert ("java", "groups") not in recorded(3, tmp_path), "three nodes were not asked"
    assert json.loads((tmp_path / RECORDED).read_text())["java"]["admin-cluster"]["facts"] == {"a": 2}
