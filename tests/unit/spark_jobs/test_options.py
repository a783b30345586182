"""The options of the data source: what is taken, what is refused and why."""

from __future__ import annotations

import pytest

from spark_jobs.options import ReadOptions, TopicSelection, parse_options
from spark_jobs.partition_files import Refused

NAMED = {"path": "/data", "subscribe": "t"}


def test_what_is_not_said_is_as_in_the_connector() -> None:
    assert parse_options(NAMED) == ReadOptions(("/data",), TopicSelection(topics=("t",)), "earliest", "latest")


def test_names_of_options_are_taken_in_any_case() -> None:
    options = parse_options({"PATH": "/a,/b/", "Subscribe": "t, u", "INCLUDEHEADERS": "True", "minpartitions": "7"})
    assert options.directories == ("/a", "/b")
    assert options.subscription.topics == ("t", "u")
    assert (options.include_headers, options.tasks_min) == (True, 7)


def test_a_list_of_directories_may_come_as_json() -> None:
    assert parse_options({"paths": '["/a", "file:///b"]', "subscribe": "t"}).directories == ("/a", "/b")


def test_partitions_are_assigned_in_json() -> None:
    options = parse_options({"path": "/data", "assign": '{"t": [0, 2], "u": [1]}'})
    assert options.subscription.partitions == (("t", 0), ("t", 2), ("u", 1))


def test_offsets_are_given_in_json() -> None:
    options = parse_options(
        {**NAMED, "startingOffsets": '{"t": {"0": 23, "1": -2}}', "endingOffsets": '{"t": {"0": 40, "1": -1}}'}
    )
    assert options.starting == {("t", 0): 23, ("t", 1): -2}
    assert options.ending == {("t", 0): 40, ("t", 1): -1}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribe": "t"}, "path is not given"),
        ({"path": "s3://bucket/x", "subscribe": "t"}, "not on a local disk"),
        ({"path": "/data"}, "exactly one of subscribe, assign, subscribePattern"),
        ({**NAMED, "assign": '{"t": [0]}'}, "not subscribe and assign"),
        ({"path": "/data", "subscribe": " , "}, "names no topic"),
        ({"path": "/data", "subscribePattern": "("}, "not a regular expression"),
        ({"path": "/data", "assign": "[0]"}, "not of the shape"),
        ({"path": "/data", "assign": '{"t": [-1]}'}, "not of the shape"),
        ({"path": "/data", "assign": "t"}, "not JSON"),
        ({**NAMED, "startingOffsets": "latest"}, "startingOffsets=latest is not possible in a batch query"),
        ({**NAMED, "endingOffsets": "earliest"}, "endingOffsets=earliest is not possible in a batch query"),
        ({**NAMED, "startingOffsets": '{"t": {"0": -1}}'}, "-1 (latest) for t-0 is not possible in a batch query"),
        ({**NAMED, "endingOffsets": '{"t": {"0": -2}}'}, "-2 (earliest) for t-0 is not possible in a batch query"),
        ({**NAMED, "startingOffsets": '{"t": {"0": -3}}'}, "of the shape"),
        ({**NAMED, "startingOffsets": '{"t": [1]}'}, "of the shape"),
        ({**NAMED, "startingOffsets": "tomorrow"}, "not JSON"),
        ({**NAMED, "includeHeaders": "yes"}, "neither true nor false"),
        ({**NAMED, "minPartitions": "0"}, "minPartitions: 0 is not a whole number above 0"),
        ({**NAMED, "maxOffsetsPerTrigger": "5"}, "maxoffsetspertrigger is not supported"),
        ({**NAMED, "kafka.bootstrap.servers": "h:9092"}, "no broker is asked"),
        ({**NAMED, "startingTimestamp": "5"}, "offsets by time"),
        ({**NAMED, "kafka.isolation.level": "read_committed"}, "only read_uncommitted is"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(options: dict[str, str], said: str) -> None:
    with pytest.raises(Refused) as refusal:
        parse_options(options)
    assert said in str(refusal.value)
