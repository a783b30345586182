"""The pytest plugin, each time in a session of pytest of its own over a small project."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

OWN_TOPICS = """
    from confluent_kafka import Producer

    def test_one(kafka):
        topic = kafka.topic("orders", partitions=2)
        assert topic.startswith("test_one-") and topic.endswith("-orders")
        Producer({"bootstrap.servers": kafka.bootstrap_servers}).produce(topic, "x")
        kafka.produce(topic, "y")
        assert topic in kafka.topics()

    def test_two(kafka):
        assert kafka.group() != kafka.group("other")
        topic = kafka.topic("orders")
        with kafka.assert_produces(topic):
            kafka.produce(topic, "only this")
        assert [record.value for record in kafka.records(topic)] == [b"only this"]
"""
MARKED = """
    import pytest

    def test_alone(kafka_cluster):
        assert len(kafka_cluster.nodes) == 3
        kafka_cluster.node(1).kill()

    @pytest.mark.moldau(nodes=1, settings={"auto.create.topics.enable": "false"})
    class TestSettings:
        def test_shared(self, kafka):
            with pytest.raises(Exception, match="UNKNOWN_TOPIC|Unknown topic"):
                kafka.produce("absent", "x")

        def test_own(self, kafka_cluster, kafka):
            assert len(kafka_cluster.nodes) == 1
            assert kafka_cluster.bootstrap_servers != kafka.bootstrap_servers

    @pytest.mark.moldau(3)
    def test_wrong(kafka):
        pass
"""
FAILING = """
    def test_fails(kafka):
        kafka.cluster.node(1).stop()
        assert False

    def test_passes(kafka):
        kafka.topic()
"""
ENDED = """
    def test_ends_the_shared_node(kafka):
        kafka.cluster.node(1).kill()

    def test_has_another_one(kafka):
        kafka.produce(kafka.topic(), "x")
"""
LEFT = """
    import json
    import urllib.request
    import pytest
    from confluent_kafka.admin import AdminClient

    secure = pytest.mark.moldau(secure=True)

    def seen_by_alice(kafka):
        return set(AdminClient(kafka.client_settings("confluent-kafka", "alice")).list_topics(timeout=10).topics)

    @secure
    def test_allows_everything(kafka):
        topic = kafka.topic()
        kafka.allow("alice", "read", topic="*", group="kitchen")
        kafka.allow("alice", "read", topic="*")
        assert topic in seen_by_alice(kafka)

    @secure
    def test_is_not_allowed(kafka):
        kafka.topic()
        assert not seen_by_alice(kafka)

    def test_pauses_the_shared_node(kafka):
        kafka.cluster.node(1).pause()
        kafka.cluster.node(1).pause()

    def test_is_answered(kafka):
        kafka.produce(kafka.topic(), "x")

    def test_pauses_one_with_faults(kafka, kafka_faults):
        kafka.cluster.node(1).pause()

    def test_moves_the_clock(kafka, kafka_faults):
        assert clock(kafka) == 0
        kafka.cluster.clock.advance(hours=3)
        assert clock(kafka) == 10_800_000

    def test_has_the_real_clock(kafka, kafka_faults):
        assert clock(kafka) == 0

    def clock(kafka):
        with urllib.request.urlopen(kafka.cluster.node(1).greeting["control"] + "/v1/clock") as answer:
            return json.load(answer)["offset_ms"]
"""
IMPORTS = """
    import sys

    def test_nothing_is_imported():
        held = {name for name in sys.modules if name.startswith("moldau")}
        assert held == {"moldau", "moldau.testing", "moldau.testing.plugin"}
        assert not {"confluent_kafka", "kafka", "aiokafka", "asyncio.subprocess"} & set(sys.modules)
"""
FAULTS = """
    import pytest

    def test_shared(kafka, kafka_faults):
        topic = kafka.topic()
        with kafka_faults.error("MESSAGE_TOO_LARGE", api="Produce", topic=topic):
            with pytest.raises(Exception, match="MSG_SIZE_TOO_LARGE|MESSAGE_TOO_LARGE|MessageSizeTooLarge"):
                kafka.produce(topic, "x")
        kafka.produce(topic, "x")
        kafka_faults.reset(api="Produce")

    def test_without(kafka, kafka_faults):
        kafka.produce(kafka.topic(), "x")

    @pytest.mark.moldau(nodes=1)
    def test_own(kafka_cluster, kafka_faults):
        kafka_cluster.clock.advance(hours=1)
        kafka_faults.reset(api="Produce", times=1)
        kafka_cluster.produce("t", "x")
        assert False
"""


HELD = """
    import pytest
    from moldau.testing import faults

    @pytest.mark.moldau(nodes=1)
    def test_own(kafka_cluster, kafka_faults):
        faults.ANSWER_S = 0.2
        kafka_cluster.node(1).pause()
        assert False

    def test_next():
        pass
"""


def session(project: Path, program: str, *words: str) -> subprocess.CompletedProcess[str]:
    lines = [line[4:] for line in program.splitlines()]
    (project / "test_project.py").write_text("\n".join(lines))
    command = [sys.executable, "-m", "pytest", "-p", "moldau.testing.plugin", "-p", "no:cacheprovider", *words]
    variables = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, cwd=project, env=variables, capture_output=True, text=True, timeout=120)


def test_each_test_has_topics_and_groups_of_its_own(tmp_path: Path) -> None:
    done = session(tmp_path, OWN_TOPICS, "--strict-markers")
    assert "2 passed" in done.stdout, done.stdout


def test_under_xdist_each_worker_has_its_broker(tmp_path: Path) -> None:
    done = session(tmp_path, OWN_TOPICS, "-p", "xdist", "-n", "2")
    assert "2 passed" in done.stdout, done.stdout


def test_a_marker_says_nodes_and_settings(tmp_path: Path) -> None:
    done = session(tmp_path, MARKED, "--strict-markers")
    assert "3 passed, 1 error" in done.stdout, done.stdout
    assert "the marker moldau takes nodes=..., settings=..., secure=... and users=..." in done.stdout


def test_the_log_of_the_node_is_in_the_report_of_a_failure_alone(tmp_path: Path) -> None:
    done = session(tmp_path, FAILING, "--override-ini=addopts=")
    assert "1 failed, 1 passed" in done.stdout, done.stdout
    assert done.stdout.count("Log of node 1 of Moldau") == 1
    section = done.stdout.partition("Log of node 1 of Moldau")[2]
    assert "stopping on SIGTERM" in section and "serves" not in section


def test_a_shared_node_that_a_test_ended_is_replaced(tmp_path: Path) -> None:
    done = session(tmp_path, ENDED)
    assert "2 passed" in done.stdout, done.stdout


def test_what_a_test_changes_in_the_shared_broker_ends_with_it(tmp_path: Path) -> None:
    done = session(tmp_path, LEFT)
    assert "7 passed" in done.stdout, done.stdout


def test_loading_the_plugin_imports_nothing(tmp_path: Path) -> None:
    done = session(tmp_path, IMPORTS)
    assert "1 passed" in done.stdout, done.stdout


def test_faults_end_with_their_test_and_the_timeline_is_reported(tmp_path: Path) -> None:
    done = session(tmp_path, FAULTS, "--strict-markers")
    assert "1 failed, 2 passed" in done.stdout, done.stdout
    timeline = done.stdout.partition("Timeline of the clients and faults of Moldau")[2]
    assert "clock: 3600000 ms" in timeline and "fault meets" in timeline, done.stdout


def test_a_node_that_is_held_does_not_end_the_session(tmp_path: Path) -> None:
    done = session(tmp_path, HELD, "--strict-markers")
    assert "1 failed, 1 passed" in done.stdout and "INTERNALERROR" not in done.stdout + done.stderr, done.stdout
    assert "node 1 does not answer" in done.stdout.partition("Timeline of the clients and faults of Moldau")[2]
