"""Samples as text: what Prometheus' parser is promised."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from moldau.broker.metrics.catalogue import metrics
from moldau.broker.metrics.exposition import Histogram, Page, Summary, number

MBEANS = Path(__file__).with_name("kafka_4_3_1_mbeans.txt")
OF_DEAD_LETTERS = ("RecordCount", "TotalProduceRequestsPerSec", "FailedProduceRequestsPerSec")
"""Of Apache Kafka 4.4.0."""
GAUGE = "moldau_group_members"
HISTOGRAM = "moldau_event_loop_stall_seconds"


def test_every_metric_is_announced_though_it_has_no_sample() -> None:
    text = Page().text()
    assert re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE) == [(m.name, m.kind) for m in metrics().values()]
    assert text.endswith("\n") and not re.search(r"^[^#]", text, re.MULTILINE)


def test_labels_are_escaped() -> None:
    page = Page()
    page.add(GAUGE, 1.5, (("topic", 'a"b\\c\nd'), ("partition", "0")))
    assert GAUGE + r'{topic="a\"b\\c\nd",partition="0"} 1.5' in page.text().splitlines()


def test_a_histogram_is_cumulative_and_its_bounds_are_inclusive() -> None:
    histogram = Histogram((0.5, 1))
    for value in (0.5, 0.75, 1, 7):
        histogram.observe(value)
    page = Page()
    page.add_histogram(HISTOGRAM, histogram)
    assert [line for line in page.text().splitlines() if line.startswith(HISTOGRAM)] == [
        f'{HISTOGRAM}_bucket{{le="0.5"}} 1',
        f'{HISTOGRAM}_bucket{{le="1"}} 3',
        f'{HISTOGRAM}_bucket{{le="+Inf"}} 4',
        f"{HISTOGRAM}_sum 9.25",
        f"{HISTOGRAM}_count 4",
    ]


def test_a_summary_is_a_sum_and_a_count() -> None:
    summary = Summary()
    summary.observe(0.25)
    page = Page()
    page.add_summary("moldau_gc_pause_seconds", summary, (("generation", "2"),))
    assert 'moldau_gc_pause_seconds_sum{generation="2"} 0.25' in page.text()
    assert 'moldau_gc_pause_seconds_count{generation="2"} 1' in page.text()


@pytest.mark.parametrize(("value", "shown"), [(3, "3"), (True, "1"), (2.0, "2"), (0.1, "0.1"), (float("inf"), "+Inf")])
def test_numbers_are_short(value: float, shown: str) -> None:
    assert number(value) == shown


def test_a_name_outside_the_catalogue_is_a_bug() -> None:
    with pytest.raises(KeyError):
        Page().add("nobody_knows", 1)


def test_names_are_those_that_the_jmx_exporter_makes_of_kafkas() -> None:
    """kafka.server:type=ReplicaManager,name=LeaderCount → kafka_server_replicamanager_leadercount."""
    for metric in metrics().values():
        if metric.name.startswith("kafka_consumergroup_"):
            continue  # Apache Kafka has none: these are names of a lag exporter.
        match = re.fullmatch(r"(kafka\.[a-z.]+):type=([\w-]+),name=([\w-]+)", metric.kafka_name or "")
        assert (
            metric.name.startswith("kafka_") is (metric.kafka_name or "").startswith("kafka") or "info" in metric.name
        )
        if match is None:
            continue
        domain, kind, name = (part.lower().replace(".", "_").replace("-", "_") for part in match.groups())
        if name.endswith("persec"):
            name = name.removesuffix("persec") + "_total"
        assert metric.name == f"{domain}_{kind}_{name}"


def test_apache_kafka_has_what_the_table_says_it_calls_so() -> None:
    known = {line for line in MBEANS.read_text("utf-8").splitlines() if not line.startswith("#")}
    said = {metric.kafka_name for metric in metrics().values() if (metric.kafka_name or "").startswith("kafka")}
    assert said - known == {
        "kafka.server:type=app-info",  # of which each attribute became a label
        "kafka.server:type=LeaderReplication,name=byte-rate",  # made with the first throttled byte
        "kafka.server:type=FollowerReplication,name=byte-rate",
        *(f"kafka.server:type=ShareGroupMetrics,name=DeadLetterQueue{name}" for name in OF_DEAD_LETTERS),
    }


def test_counters_are_called_so() -> None:
    for metric in metrics().values():
        if metric.kind == "counter":
            assert metric.name.endswith(("_total", "count")), metric.name
        assert re.fullmatch(r"[A-Z1-9].*\.", metric.meaning), metric.name
