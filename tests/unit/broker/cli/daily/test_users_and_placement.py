"""Users, quotas, moves of replicas and elections by the daily commands: the stories that the conformance asks Apache
Kafka too, with their facts; and moves and elections on two brokers.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.broker.cli.daily.failures import WrongArguments
from moldau.broker.cli.daily.placement.moving import plan_of_file, spread_replicas
from moldau.testing import Cluster
from moldau.testing.namespace import Namespace
from tests.support.daily_command import DailyCommand
from tests.support.daily_stories import failed, placement, send, until, users_and_quotas


@pytest.mark.processes
def test_users_and_quotas(kafka: Namespace) -> None:
    facts = users_and_quotas(DailyCommand(kafka.bootstrap_servers), "alice")
    assert facts["made"] == "user alice made: SCRAM-SHA-512, 4096 iterations\n"
    assert facts["again"] == [1, "user alice is there already: 'moldau user update alice' changes the password"]
    assert facts["second mechanism"] == "user alice changed: SCRAM-SHA-256, 4096 iterations\n"
    assert facts["listed"] == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    statuses = {each: facts[each][0] for each in ("no password", "no user", "no mechanism", "few iterations")}
    assert statuses == {"no password": 2, "no user": 3, "no mechanism": 2, "few iterations": 2}
    assert "did you mean alice?" in facts["no user"][1]
    assert [row["mechanism"] for row in facts["would go"]] == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert [row["mechanism"] for row in facts["one gone"]] == ["SCRAM-SHA-256"]
    assert (facts["one left"], facts["none left"]) == (["SCRAM-SHA-512"], 3)
    assert facts["set"] == "changed for user alice: producer_byte_rate=1048576, request_percentage=12.5\n"
    assert [[row["user"], row["client_id"], row["ip"], row["quota"], row["value"]] for row in facts["quotas"]] == [
        [None, None, "10.0.0.7", "connection_creation_rate", 20.0],
        [None, "<default>", None, "controller_mutation_rate", 10.0],
        ["alice", None, None, "producer_byte_rate", 1048576.0],
        ["alice", None, None, "request_percentage", 12.5],
        ["alice", "loader", None, "consumer_byte_rate", 5.0],
    ]
    assert facts["shown"][1].split() == ["alice", "loader", "-", "consumer_byte_rate", "5"]
    assert facts["checked"] == "can be changed for user alice: producer_byte_rate=1\n"
    assert facts["unset"] == "changed for user alice: producer_byte_rate removed, request_percentage removed\n"
    assert facts["no quotas"] == []
    assert [facts[each][0] for each in ("of nobody", "no number", "two of a kind", "address and user")] == [2, 2, 2, 2]
    assert [facts[each][0] for each in ("unknown quota", "no rate")] == [3, 1]


@pytest.mark.moldau(secure=True, users=("alice",))
@pytest.mark.processes
def test_a_user_that_was_made_logs_in(kafka: Namespace, tmp_path: Path) -> None:
    settings = {**kafka.client_settings("java", "admin")}
    variables = {f"MOLDAU_CLIENT_{name.upper().replace('.', '_')}": value for name, value in settings.items()}
    admin = DailyCommand(kafka.bootstrap_servers, variables)
    file = tmp_path / "password"
    file.write_text('p"ß w\n')
    admin.done("user", "create", "berta", "--password-file", str(file))
    jaas = settings["sasl.jaas.config"].partition(" username=")[0] + ' username="berta" password="p\\"ß w";'
    mechanism = {"MOLDAU_CLIENT_SASL_JAAS_CONFIG": jaas, "MOLDAU_CLIENT_SASL_MECHANISM": "SCRAM-SHA-512"}
    berta = DailyCommand(kafka.bootstrap_servers, {**variables, **mechanism})
    assert until(lambda: berta("topic", "list").status, 0) == 0
    said = berta("user", "list")
    assert said.status == 4 and "the user has no right" in said.failure


@pytest.mark.processes
def test_placement_on_one_broker(kafka: Namespace) -> None:
    facts = placement(DailyCommand(kafka.bootstrap_servers), "placed")
    assert facts["nothing moves"] == ["no replica is moving\n"] * 2
    assert facts["there already"] == "all replicas are there already\n"
    assert facts["elected"] == "each of these partitions is led by its preferred leader\n"
    assert facts["has a leader"] == "each of these partitions has a leader\n"
    statuses = {name: fact[0] for name, fact in facts.items() if isinstance(fact[0], int)}
    assert statuses == {
        "too few brokers": 2,
        "unknown broker": 3,
        "no ids": 2,
        "no topic": 3,
        "no partition": 3,
        "nothing named": 2,
        "no file": 2,
        "no index": 2,
    }


@pytest.mark.processes
def test_replicas_move_to_another_broker_and_leaders_back(tmp_path: Path) -> None:
    with Cluster(nodes=2) as cluster:
        run = DailyCommand(cluster.bootstrap_servers)
        said = run("topic", "create", "orders", "--replica-assignment", "1:2,1,1")
        assert said.status == 1 and "not consistent with previous partitions" in said.failure, "as Apache Kafka says"
        run.done("topic", "create", "orders", "--replica-assignment", "1,1,1")
        run.done("reassign", "move", "orders:0", "--brokers", "1,2", "-r", "2", "--execute", "--wait")
        send(cluster.bootstrap_servers, "orders", {1: [("v", 1)] * 100})

        def replicas() -> list[list[int]]:
            (topic,) = run.rows("topic", "describe", "orders")
            return [each["replicas"] for each in topic["partition_list"]]

        move = ("reassign", "move", "orders:1,2", "--brokers", "2")
        assert [(row["partition"], row["new_replicas"]) for row in run.rows(*move)] == [(1, [2]), (2, [2])]
        assert replicas() == [[1, 2], [1], [1]]
        said = run(*move, "--execute", "--wait")
        assert said.status == 0 and said.err.endswith("2 of 2 partitions moved\n")
        assert until(replicas, [[1, 2], [2], [2]]) == [[1, 2], [2], [2]]
        assert run.done("consume", "orders:1", "-e").count("v") == 100
        run.done("reassign", "move", "orders:0", "--brokers", "2,1", "--execute", "--wait")
        spread_again = run.rows("reassign", "move", "orders", "--brokers", "1,2", "-r", "2")
        assert [row["partition"] for row in spread_again] == [1, 2]
        plan = {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [2, 1]}]}
        file = tmp_path / "plan.json"
        file.write_text(json.dumps(plan))
        run.done("reassign", "move", "--from-file", str(file), "--execute", "--wait")
        assert until(replicas, [[2, 1], [2], [2]])[0] == [2, 1]

        def leader() -> int:
            (topic,) = run.rows("topic", "describe", "orders")
            return int(topic["partition_list"][0]["leader"])

        closed_pipe(run, "reassign", "move", "orders:1,2", "--brokers", "1", "--execute")
        assert until(replicas, [[2, 1], [1], [1]]) == [[2, 1], [1], [1]], "what was asked for is done"
        if leader() != 2:
            assert [row["partition"] for row in run.rows("elect", "preferred", "--dry-run")] == [0]
            run.done("elect", "preferred", "orders")
        assert until(leader, 2) == 2


def closed_pipe(run: DailyCommand, *words: str) -> None:
    """Run a command whose output nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    said = run(*words, stdout=writer)
    os.close(writer)
    assert (said.status, said.err) == (0, "")


@pytest.mark.processes
def test_what_is_not_there_or_cannot_be_is_refused(kafka: Namespace, tmp_path: Path) -> None:
    run = DailyCommand(kafka.bootstrap_servers)
    run.done("topic", "create", "orders", "-p", "3", "-r", "1")
    run.done("quota", "set", "--user", "alice", "producer_byte_rate=5")
    until(lambda: len(run.rows("quota", "list")), 1)
    (broker,) = (str(row["broker"]) for row in run.rows("cluster-status")[0]["brokers"])
    assert run.done("quota", "list", "--user", "berta").startswith("there are no quotas of user berta: ")
    moving = run.done("reassign", "move", "orders", "orders:0", "--brokers", broker, "--execute")
    assert moving == "all replicas are there already\n"
    said = {
        words: (status, text)
        for words in (
            ("quota", "unset", "--user", "alice", "producer_byte_rat"),
            ("quota", "unset", "--user", "berta", "producer_byte_rate"),
            ("quota", "set", "--user", "alice", "producer_byte_rate=nan"),
            ("elect", "preferred", "orders:7"),
            ("elect", "preferred", "orders:"),
            ("topic", "alter", "orders", "-p", "99999999999"),
        )
        for status, text in [failed(run(*words))]
    }
    assert list(said.values()) == [
        (3, "user alice has no quota producer_byte_rat: it has producer_byte_rate"),
        (3, "user berta has no quota producer_byte_rate: it has none"),
        (2, "producer_byte_rate=nan is not NAME=VALUE with a number, such as producer_byte_rate=1048576"),
        (3, "topic orders has no partition 7: it has 3"),
        (2, "orders: is not of the form TOPIC:0,1,2"),
        (2, "a number is too large: CreatePartitions has no room for it"),
    ]
    file = tmp_path / "plan.json"
    plans = {"[7]": (3, "there is no broker 7"), "[]": (2, "has no replicas"), f"[{broker}, {broker}]": (2, "twice")}
    for replicas, (status, text) in plans.items():
        file.write_text(f'{{"partitions": [{{"topic": "orders", "partition": 0, "replicas": {replicas}}}]}}')
        said_of_plan = run("reassign", "move", "--from-file", str(file))
        assert said_of_plan.status == status and text in said_of_plan.failure
    run.done("topic", "delete", "orders", "--execute")
    run.done("quota", "unset", "--user", "alice", "producer_byte_rate")


@pytest.mark.processes
def test_an_output_that_cannot_be_written_is_said(kafka: Namespace) -> None:
    run = DailyCommand(kafka.bootstrap_servers)
    with open("/dev/full", "w") as full:
        said = run("topic", "list", stdout=full)
    assert said.failure == "the output cannot be written: No space left on device"
    closed_pipe(run, "topic", "list")


IDS = st.lists(st.integers(1, 6), min_size=1, max_size=6, unique=True)


@given(st.lists(IDS, min_size=1, max_size=12), IDS, st.integers(1, 6))
def test_replicas_are_spread_and_those_that_are_there_stay(
    now: list[list[int]], brokers: list[int], factor: int
) -> None:
    replicas = {("t", index): each for index, each in enumerate(now)}
    if factor > len(brokers):
        with pytest.raises(WrongArguments, match="cannot have"):
            spread_replicas(replicas, brokers, factor)
        return
    plan = spread_replicas(replicas, brokers, factor)
    assert plan.keys() == replicas.keys()
    for key, chosen in plan.items():
        assert len(chosen) == len(set(chosen)) == factor and set(chosen) <= set(brokers)
        kept = set(replicas[key]) & set(brokers)
        assert len(kept & set(chosen)) == min(len(kept), factor), "what can stay stays"
        if len(replicas[key]) == factor and kept == set(replicas[key]):
            assert set(chosen) == kept


def test_new_replicas_and_leaders_are_spread_evenly() -> None:
    plan = spread_replicas({("t", index): [9] for index in range(12)}, [1, 2, 3], 2)
    for broker in (1, 2, 3):
        assert sum(each[0] == broker for each in plan.values()) == 4
        assert sum(broker in each for each in plan.values()) == 8


def test_a_plan_of_kafkas_tool_is_read(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text(
        '{"version":1,"partitions":[{"topic":"t","partition":1,"replicas":[2,3],"log_dirs":["any","any"]}]}'
    )
    assert plan_of_file(str(file)) == {("t", 1): [2, 3]}
    named = '{"partitions": [{"topic": "t", "partition": 0.7, "replicas": [1]}]}'
    for text in ("", "[]", '{"partitions": [{"topic": "t"}]}', '{"partitions": 7}', named):
        file.write_text(text)
        with pytest.raises(WrongArguments, match="is not a plan"):
            plan_of_file(str(file))
