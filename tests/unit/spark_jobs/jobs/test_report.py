"""The report without a JVM: its arguments, buckets, keys and lags, and the three forms in which it is shown."""

from __future__ import annotations

import argparse
import json
import pickle
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from moldau.broker.cli.spark import add_report, job_of
from moldau.spark_jobs.jobs.moments import milliseconds_of, shown_moment, shown_span
from moldau.spark_jobs.jobs.report import KeyCountReader, KeyCountSource, ReportJob, key_figures, lags_of, plan_report
from moldau.spark_jobs.jobs.report_figures import (
    BUCKETS_MAX,
    BucketFigures,
    GroupLag,
    HotKey,
    KeyFigures,
    PartitionFigures,
    Report,
    TimeBuckets,
    TopicFigures,
    buckets_between,
    shown_key,
    skew_of,
)
from moldau.spark_jobs.jobs.report_html import page_of
from moldau.spark_jobs.jobs.report_text import Blocks, shown_size, text_lines
from moldau.spark_jobs.jobs.svg_charts import (
    CHARACTER_WIDTH,
    LABEL_LENGTH_MAX,
    Bar,
    Column,
    bar_chart,
    column_chart,
    nice_step,
)
from moldau.tables.refusals import Refused
from tests.support.segments import mixed_batches, write_checkpoints, write_partition


def job_from(*words: str) -> ReportJob:
    parser = argparse.ArgumentParser()
    add_report(parser.add_subparsers())
    return job_of(parser.parse_args(["report", "--path", "/data", *words]))


def test_arguments_become_options() -> None:
    assert job_from().options == {"path": "/data", "subscribePattern": ".*"}
    job = job_from("--topic", "a,b", "--since", "2026-11-20", "--until", "1700000000000", "--hot-keys", "0")
    assert job.options["subscribe"] == "a,b" and job.hot_keys == 0
    assert job.options["startingTimestamp"] == "1795132800000" and job.until_ms == 1_700_000_000_000
    for words, said in (
        (("--since", "yesterday"), "--since: 'yesterday' is neither a time like"),
        (("--bucket", "0"), "--bucket: 0 is not"),
        (("--hot-keys", "-1"), "--hot-keys: -1 is below 0"),
    ):
        with pytest.raises(Refused, match=said):
            job_from(*words)


def test_moments() -> None:
    assert milliseconds_of("--since", "2026-11-20T06:00:00.250") == 1795154400250
    assert milliseconds_of("--since", "2026-11-20T06:00+02:00") == 1795147200000
    assert shown_moment(1795154400250) == "2026-11-20 06:00:00"
    assert shown_moment(1 << 62) == f"{1 << 62} ms"
    assert [shown_span(each) for each in (5, 900, 7200, 86_400)] == ["5 s", "15 min", "2 h", "1 d"]


@pytest.mark.parametrize("span", [0, 59, 60, 3_600, 86_400, 40 * 86_400, 5_000_000_000])
def test_buckets_hold_both_ends(span: int) -> None:
    first = 1_700_000_123
    buckets = buckets_between(first, first + span)
    assert buckets.count <= BUCKETS_MAX
    first_end, last_end = buckets.start_s + buckets.width_s, buckets.start_s + buckets.count * buckets.width_s
    assert buckets.start_s <= first < first_end and last_end - buckets.width_s <= first + span < last_end
    assert buckets_between(0, 119, 60) == TimeBuckets(0, 60, 2)
    assert buckets_between(0, 119, 1) == TimeBuckets(0, 2, 60), "the limit goes before the wish"


def test_the_plan_lists_partitions_and_says_what_is_missing(tmp_path: Path) -> None:
    write_partition(tmp_path, mixed_batches(10, 10))
    write_partition(tmp_path, mixed_batches(5, 10), partition=1)
    write_checkpoints(tmp_path, {("t", 0): 100, ("t", 1): 50})
    plan = plan_report(ReportJob({"path": str(tmp_path), "subscribe": "t", "startingTimestamp": "0"}))
    (topic,) = plan.topics
    assert [(each.partition, each.high_watermark) for each in topic.partitions] == [(0, 100), (1, 50)]
    assert topic.partitions[0].local_segments >= 1 and topic.partitions[0].remote_segments == 0
    assert not plan.has_groups and "__consumer_offsets" in plan.remarks[0]


def test_a_report_reads_the_partitions_of_its_plan_and_no_later_ones(tmp_path: Path) -> None:
    write_partition(tmp_path, mixed_batches(10, 10))
    write_checkpoints(tmp_path, {("t", 0): 100})
    plan = plan_report(ReportJob({"path": str(tmp_path), "subscribePattern": "t|u", "startingTimestamp": "0"}))
    write_partition(tmp_path, mixed_batches(10, 10), partition=1)
    write_partition(tmp_path, mixed_batches(10, 10), topic="u")
    write_checkpoints(tmp_path, {("t", 0): 100, ("t", 1): 100, ("u", 0): 100})
    source = KeyCountSource(plan.job.options)
    tasks = source.reader(source.schema()).partitions()
    assert {(each.topic, each.partition) for task in tasks for each in task.value} == {("t", 0)}
    assert plan.job.options["startingTimestamp"] == "0" and "subscribePattern" not in plan.job.options


def test_tasks_count_keys(tmp_path: Path) -> None:
    write_partition(tmp_path, mixed_batches(10, 10))
    write_checkpoints(tmp_path, {("t", 0): 100})
    source = KeyCountSource({"path": str(tmp_path), "subscribe": "t"})
    reader = source.reader(source.schema())
    assert isinstance(reader, KeyCountReader)
    reader, tasks = pickle.loads(pickle.dumps((reader, reader.partitions())))
    rows = [tuple(row.values()) for task in tasks for batch in reader.read(task) for row in batch.to_pylist()]
    assert rows[0] == ("t", None, 15, 0, 0)
    assert sum(row[2] for row in rows) == 100 and len(rows) == 51


def test_bounds_of_several_tasks_add_up() -> None:
    rows = [(None, 3, 0, 9), (bytearray(b"often"), 100, 0, 9), (bytearray(b"late"), 40, 2, 5)]
    keys = key_figures(rows, 17)
    assert keys == KeyFigures((HotKey(b"often", 100, 100), HotKey(b"late", 40, 46)), 3, 17, 9)
    assert key_figures([], 0) is None


def test_lags() -> None:
    topic = TopicFigures("t", [PartitionFigures(0, 0, 100), PartitionFigures(1, 0, 50)])
    rows = [("slow", 0, 10, 5_000), ("slow", 1, 60, 7_000), ("fast", 0, 100, None), ("fast", 9, 1, 1)]
    assert lags_of(topic, rows) == [GroupLag("slow", 90, {0: 90, 1: 0}, 7_000), GroupLag("fast", 0, {0: 0}, None)]


def sample() -> Report:
    orders = TopicFigures("orders", [PartitionFigures(0, 0, 300, 300, 3000), PartitionFigures(1, 5, 105, 100, 1000)])
    orders.first_s, orders.last_s, orders.batches = 1_700_000_000, 1_700_000_100, 40
    orders.buckets = [BucketFigures(300, 3000), BucketFigures(0, 0), BucketFigures(90, 900)]
    orders.outside, orders.codecs, orders.aborted = 10, {"lz4": 3900, "none": 100}, 7
    orders.keys = KeyFigures((HotKey(b"<b>", 200, 220), HotKey(b"\xff\x00", 90, 90)), 10, 50, 20)
    orders.groups = [GroupLag("billing", 120, {0: 100, 1: 20}, 1_700_000_050_000), GroupLag("idle", 0, {0: 0}, None)]
    empty = TopicFigures("empty", [PartitionFigures(0, 0, 0)], buckets=[BucketFigures()] * 3)
    return Report("4L6g3nShT-eMCtK--X86sw", TimeBuckets(1_700_000_000, 60, 3), [orders, empty], ["a remark"])


def test_text() -> None:
    text = "\n".join(text_lines(sample()))
    assert (
        "orders: 2 partitions, 400 records, 4.0 kB, 10 B a record, 10.0 records a batch, lz4 97.5 %, none 2.5 %" in text
    )
    assert re.search(r"^ +5 \|█ ▃\| records/s$", text, re.MULTILINE) or "|█  |" in text
    assert "<b>" in text and "200 to 220" in text and "0xff00" in text
    assert "a key that is not shown may have up to 20 uncounted records" in text
    assert "skew, the largest partition over the mean: 1.50 by bytes, 1.50 by records" in text
    assert re.search(r"billing +120 .* 100 \(partition 0\) +2023-11-14 22:14:10", text)
    assert text.endswith("note: a remark")
    assert all(line.isascii() for line in text_lines(sample(), is_ascii=True))


def test_json() -> None:
    found = json.loads(sample().as_json())
    assert found["format_version"] == 1 and found["buckets"] == {"start_s": 1_700_000_000, "width_s": 60, "count": 3}
    orders = found["topics"][0]
    assert (orders["records"], orders["bytes"], orders["bytes_skew"]) == (400, 4000, 1.5)
    assert orders["keys"]["hot"][1] == {"key": "0xff00", "records": 90, "records_max": 90}
    assert orders["groups"][0]["partitions"] == {"0": 100, "1": 20}


def test_the_page_stands_alone_and_escapes() -> None:
    page = page_of(sample())
    assert "&lt;b&gt;" in page and "<b>&" not in page
    assert "<script" not in page and "src=" not in page and "@import" not in page
    assert set(re.findall(r"https?://[^\"]+", page)) == {"http://www.w3.org/2000/svg"}
    charts = re.findall(r"<svg.*?</svg>", page)
    assert len(charts) == 6
    for chart in charts:
        ElementTree.fromstring(chart)


def test_charts_of_nothing() -> None:
    assert "<rect" not in column_chart("none", [Column(0, "t")], str, [])
    ElementTree.fromstring(column_chart("none", [], str, []))
    ElementTree.fromstring(bar_chart("none", [Bar("a", 0, "0")], 0))
    assert [nice_step(each) for each in (4, 9, 17, 0.3)] == [1.0, 2.5, 5.0, 0.1]


def test_long_numbers_and_labels_stay_inside_of_a_chart() -> None:
    number = "1,234,567,890,123 to 1,234,567,899,999, 16.7 %"
    root = ElementTree.fromstring(bar_chart("wide", [Bar("k" * 255, 2, number), Bar("k", 1, "1")], 1.5))
    width = float(root.attrib["viewBox"].split()[2])
    numbers = [each for each in root.iter() if each.text in (number, "1")]
    assert all(float(each.attrib["x"]) + len(each.text or "") * CHARACTER_WIDTH <= width for each in numbers)
    (label,) = [each for each in root.iter() if (each.text or "").startswith("kk") and "text-anchor" in each.attrib]
    assert label.attrib["x"] == "0" and len(label.text or "") == LABEL_LENGTH_MAX, "its beginning is seen"
    assert len(numbers) == 2


def test_cards_headings_and_tables_wrap_or_scroll() -> None:
    page = page_of(sample())
    assert "nowrap" not in page and "overflow-wrap: anywhere" in page
    parts = len(re.findall("<svg|<table", page))
    assert parts == len(re.findall('<div class="wide"><(?:svg|table)', page)) == 10


def test_small_parts() -> None:
    assert Blocks().bar(0.5, 4) == "██  " and Blocks(is_ascii=True).bar(0.5, 4) == "##  "
    assert Blocks().columns([8, 4, 0, 0.01], 1) == ["█▄ ▁"]
    assert [shown_size(each) for each in (0, 999, 1000, 123_456, 5e15)] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "123 kB",
        "5.0 PB",
    ]
    assert shown_key("ключ".encode()) == "ключ" and shown_key(b"") == "0x" and shown_key(b"\n") == "0x0a"
    assert skew_of([]) == skew_of([0, 0]) == 1.0
