"""The JSON of checkpoints, and the lag in a query's progress."""

from __future__ import annotations

import json

import pytest

from moldau.spark_jobs.streams.progress import offsets_behind_latest
from moldau.spark_jobs.streams.stream_offsets import as_json, from_json, topic_ids_in
from moldau.tables.refusals import Refused


def test_offsets_are_written_in_order() -> None:
    offsets = {("u", 0): 3, ("t", 10): 1, ("t", 2): 5}
    assert json.dumps(as_json(offsets)) == '{"t": {"2": 5, "10": 1}, "u": {"0": 3}}'
    assert from_json(as_json(offsets)) == offsets


@pytest.mark.parametrize("written", [{"logOffset": 3}, {"t": {"a": 1}}, {"t": {"0": "1"}}, {"t": {"0": -1}}, [], 5])
def test_a_checkpoint_of_another_source_is_refused(written: object) -> None:
    with pytest.raises(Refused, match="checkpoint"):
        from_json(written)


def test_the_lag_is_over_all_partitions() -> None:
    source = {"endOffset": '{"t": {"0": 5, "1": 10}}', "latestOffset": {"t": {"0": 25, "1": 10, "2": 4}}}
    assert offsets_behind_latest(source) == {
        "minOffsetsBehindLatest": 0,
        "maxOffsetsBehindLatest": 20,
        "avgOffsetsBehindLatest": 10.0,
    }
    assert offsets_behind_latest({"endOffset": None, "latestOffset": None}) == {}


def test_the_ids_of_topics_are_names_without_partitions() -> None:
    written = as_json({("b", 0): 3, ("a", 1): 2}, {"a": "A" * 22, "gone": "G" * 22})
    assert list(written.items()) == [("a", {"1": 2}), ("b", {"0": 3}), ("a#" + "A" * 22, {})]
    assert from_json(written) == {("a", 1): 2, ("b", 0): 3}
    assert topic_ids_in(written) == {"a": "A" * 22} and topic_ids_in({"a": {"0": 1}}) == {}
