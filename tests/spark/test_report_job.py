"""The job `report` with Spark: its figures against those of the written records."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from moldau.protocol.compiler import encode
from moldau.protocol.record_builder import Record, build_batch
from moldau.protocol.records.offsets import OffsetCommitKey, OffsetCommitValue
from moldau.protocol.records.record_frames import type_prefix
from moldau.spark_jobs.jobs.progress import JobProgress
from moldau.spark_jobs.jobs.report import (
    EXCHANGE_SIZE,
    EXCHANGE_TASKS,
    EXCHANGE_TASKS_MAX,
    ReportJob,
    exchange_tasks_set,
    plan_report,
    run_report,
)
from moldau.spark_jobs.jobs.report_figures import Report
from tests.support.segments import mixed_batches, mixed_record, write_checkpoints, write_partition


def commit(group: str, topic: str, partition: int, offset: int) -> Record:
    key = type_prefix(1) + encode(OffsetCommitKey(group=group, topic=topic, partition=partition), 0)
    value = OffsetCommitValue(offset=offset, leader_epoch=-1, metadata="", commit_timestamp=1_700_000_000_000)
    return Record(key, type_prefix(3) + encode(value, 3), 1_700_000_000_000)


def reported(spark: SparkSession, directory: Path, job: ReportJob) -> Report:
    return run_report(spark, plan_report(job), JobProgress(print, 0, 0))


def test_figures_are_those_of_the_records(spark: SparkSession, tmp_path: Path) -> None:
    batches = [mixed_batches(40, 10), mixed_batches(10, 10, first_offset=400)]
    write_partition(tmp_path, batches[0])
    write_partition(tmp_path, batches[1], partition=1)
    commits = [commit("slow", "t", 0, 150), commit("slow", "t", 1, 500), commit("other", "u", 0, 3)]
    written = build_batch(commits, partition_leader_epoch=0)
    end = write_partition(tmp_path, [written], topic="__consumer_offsets")
    write_checkpoints(tmp_path, {("t", 0): 400, ("t", 1): 500, ("__consumer_offsets", 0): end})
    report = reported(spark, tmp_path, ReportJob({"path": str(tmp_path), "subscribe": "t"}, hot_keys=3))
    (topic,) = report.topics
    assert [each.records for each in topic.partitions] == [400, 100]
    assert [each.bytes for each in topic.partitions] == [sum(map(len, each)) for each in batches]
    assert topic.batches == 50 and sum(topic.codecs.values()) == topic.bytes and len(topic.codecs) == 5
    assert sum(each.records for each in topic.buckets) == 500 and topic.outside == 0
    keys = [mixed_record(offset).key for offset in range(500)]
    assert topic.keys is not None and topic.keys.missed_max == 0
    assert topic.keys.without_key == keys.count(None) and topic.keys.distinct == len({*keys} - {None})
    expected = sorted({key for key in keys if key}, key=lambda key: (-keys.count(key), key))[:3]
    assert [(each.key, each.records) for each in topic.keys.hot] == [(key, keys.count(key)) for key in expected]
    assert [(each.group, each.records, each.partitions) for each in topic.groups] == [("slow", 250, {0: 250, 1: 0})]
    assert report.remarks == ()
    since = {"path": str(tmp_path), "subscribe": "t", "startingTimestamp": "1700000000000"}
    late = ReportJob(since, hot_keys=0, since_ms=1_700_000_000_000)
    (topic,) = reported(spark, tmp_path, late).topics
    assert topic.keys is None and (topic.records, topic.outside) == (440, 320)


def test_exchanges_have_as_many_tasks_as_the_segments_need(spark: SparkSession) -> None:
    before, cores = spark.conf.get(EXCHANGE_TASKS), spark.sparkContext.defaultParallelism
    for size, tasks in ((0, cores), (EXCHANGE_SIZE * 40 + 1, max(cores, 41)), (1 << 50, EXCHANGE_TASKS_MAX)):
        with exchange_tasks_set(spark, size):
            assert spark.conf.get(EXCHANGE_TASKS) == str(tasks)
        assert spark.conf.get(EXCHANGE_TASKS) == before
