"""The replay without brokers and without a JVM: its rounds, its state, its arguments, and what a restart does."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.broker.cli.spark_replay import add_replay, dry_lines, job_of
from moldau.protocol.record_builder import Record
from moldau.spark_jobs.jobs.replay import (
    PlannedReplay,
    ReplayJob,
    ReplayTarget,
    options_to_compare,
    outgoing_record,
    records_in,
    run_rounds,
)
from moldau.spark_jobs.jobs.replay_state import DoneRounds, ReplayPlan, ReplayState, commit_decided
from moldau.spark_jobs.writing.commit import TransactionsLost
from moldau.storage.files.local_files import LocalFiles
from moldau.tables.client.producer import OutgoingRecord
from moldau.tables.client.transaction import ProducerIdentity, TransactionOutcome
from moldau.tables.options.read_options import parse_options
from moldau.tables.planning.planner import plan
from moldau.tables.refusals import Refused
from tests.support.segments import mixed_batches, mixed_record, write_checkpoints, write_partition

PLAN = ReplayPlan("id", "t", "cluster", "again", "cluster", {"subscribe": "t"}, {0: (5, 105), 2: (0, 7)}, 4)
JOB = ReplayJob({"path": "/data", "subscribe": "t"}, "t", ReplayTarget(("localhost:9092",), "again"))


@given(st.dictionaries(st.integers(0, 5), st.tuples(st.integers(0, 50), st.integers(0, 90))), st.integers(1, 40))
def test_rounds_cover_the_range_once_and_in_order(spans: dict[int, tuple[int, int]], rounds: int) -> None:
    ranges = {partition: (start, start + count) for partition, (start, count) in spans.items()}
    cut = replace(PLAN, ranges=ranges, rounds=rounds)
    for partition, (start, end) in ranges.items():
        pieces = [cut.round_ranges(number)[partition] for number in range(rounds)]
        assert [offset for piece in pieces for offset in range(*piece)] == list(range(start, end))


def test_the_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    state = ReplayState(str(tmp_path / "state"))
    assert state.read_plan() is None and state.done() == DoneRounds(0, 0, 0)
    state.write_plan(PLAN)
    state.note_done(DoneRounds(3, 80, 0))
    again = ReplayState(str(tmp_path / "state"))
    assert again.read_plan() == PLAN and again.done() == DoneRounds(3, 80, 0)
    with state.locked(), pytest.raises(Refused, match="another run of this replay is under way"), again.locked():
        pass
    for text in ("[]", "{", '{"format_version": 9}'):
        (tmp_path / "state" / "replay.json").write_text(text)
        with pytest.raises(Refused, match=r"replay\.json"):
            again.read_plan()


def test_another_replay_is_told_from_this_one() -> None:
    assert PLAN.differences(replace(PLAN, replay_id="other", rounds=9, ranges={})) == []
    other = replace(PLAN, target="elsewhere", choices={"subscribe": "t", "startingTimestamp": "5"})
    assert PLAN.differences(other) == ["target", "startingTimestamp"]
    assert PLAN.differences(replace(PLAN, cluster_id=None)) == []
    moved = replace(JOB, options={"path": "/elsewhere", "subscribe": "t", "kafka.sasl.jaas.config": "secret"})
    assert options_to_compare(JOB) == options_to_compare(moved)


@pytest.mark.parametrize(
    ("lost", "settled"), [((), True), (("a", "b"), False), (("b",), None)], ids=["committed", "aborted", "mixed"]
)
def test_what_a_restart_does_with_a_decision(lost: tuple[str, ...], settled: bool | None) -> None:
    decided = [ProducerIdentity("a", 1, 0), ProducerIdentity("b", 2, 0)]

    def end(each: ProducerIdentity, is_commit: bool) -> TransactionOutcome:
        assert is_commit
        return TransactionOutcome.LOST if each.transactional_id in lost else TransactionOutcome.DONE

    assert not commit_decided("id", 1, None, end)
    assert commit_decided("id", 1, [], end), "a round without records has no transactions"
    if settled is None:
        with pytest.raises(TransactionsLost, match="batch 1: 1 of 2 transactions"):
            commit_decided("id", 1, decided, end)
    else:
        assert commit_decided("id", 1, decided, end) == settled


def test_rounds_keep_to_the_rate_and_are_noted(tmp_path: Path) -> None:
    clock, said, slept = [0.0], list[str](), list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock[0] += seconds

    def write(number: int) -> int:
        clock[0] += 0.5
        return 20

    job = replace(JOB, state=str(tmp_path), rate=10)
    planned = PlannedReplay(job, PLAN, 1000, 1, 27, 3)
    assert run_rounds(planned, write, said.append, lambda: clock[0], sleep) == 87
    assert slept == [1.5, 1.5] and clock[0] == 4.5
    assert said[-1] == "4 s: 87 of up to 107 records, 4 of 4 rounds"
    assert ReplayState(str(tmp_path)).done() == DoneRounds(4, 87, 0)


def test_records_keep_what_they_are_to_keep(tmp_path: Path) -> None:
    write_partition(tmp_path, mixed_batches(10, 10))
    write_checkpoints(tmp_path, {("t", 0): 100})
    given = {"path": str(tmp_path), "subscribe": "t", "startingOffsets": '{"t": {"0": 13}}'}
    given |= {"endingOffsets": '{"t": {"0": 28}}'}
    (task,) = plan(LocalFiles(), parse_options(given))
    found = [record for each in task for record in records_in(each)]
    assert found == [mixed_record(offset)._replace(offset=offset) for offset in range(13, 28)]
    record = Record(b"k", None, 7, (("h", b"v"),), 3)
    kept = replace(JOB.target, keeps_timestamps=True, keeps_partitions=True)
    assert outgoing_record(record, 2, kept) == OutgoingRecord("again", 2, b"k", None, (("h", b"v"),), 7)
    assert outgoing_record(record, 2, JOB.target) == OutgoingRecord("again", None, b"k", None, (("h", b"v"),), None)
    assert outgoing_record(record._replace(timestamp=-1), 2, kept).timestamp_ms is None


def job_from(*words: str) -> ReplayJob:
    parser = argparse.ArgumentParser()
    add_replay(parser.add_subparsers())
    needed = ["replay", "--topic", "t", "--to", "again", "--bootstrap", "a:1,b:2"]
    return job_of(parser.parse_args([*needed, *words]))


def test_arguments_become_options(tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text("security.protocol=SASL_SSL\nfetch.max.bytes=1\n")
    words = ["--path", "/data", "--since", "1970-01-02", "--read-committed", "--rate", "5", "--keep-partitions"]
    job = job_from(*words, "--command-config", str(config))
    assert job.options == {
        "subscribe": "t",
        "path": "/data",
        "kafka.isolation.level": "read_committed",
        "startingTimestamp": "86400000",
        "startingOffsetsByTimestampStrategy": "latest",
    }
    assert job.target.brokers == ("a:1", "b:2") and job.target.client == {"kafka.security.protocol": "SASL_SSL"}
    assert (job.rate, job.target.keeps_partitions, job.target.keeps_timestamps) == (5, True, False)
    with pytest.raises(Refused, match="one of --path and --from is needed"):
        job_from()
    with pytest.raises(Refused, match="--rate: 0 is not above 0"):
        job_from("--path", "/data", "--rate", "0")


def test_a_dry_run_says_what_would_be_done() -> None:
    lines = dry_lines(PlannedReplay(replace(JOB, rate=10, state="/s"), PLAN, 2_000_000, 1, 27, 3))
    assert lines == [
        "t-0: offsets 5 to 105, up to 100 records",
        "t-2: offsets 0 to 7, up to 7 records",
        "up to 107 records from 2.0 MB in 4 rounds, at least 11 s, 1 round done",
        "to again with 3 partitions, keeping neither timestamps nor partitions; each record once",
    ]
