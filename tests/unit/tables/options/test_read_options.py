"""The options of the data source: what is taken, what is refused and why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from moldau.tables.options.offset_choices import Timestamps
from moldau.tables.options.option_values import StoreAddress
from moldau.tables.options.read_options import ReadOptions, TopicSelection, parse_options
from moldau.tables.refusals import Refused

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
        ({"path": "hdfs://bucket/x", "subscribe": "t"}, "neither a directory nor a URL of s3"),
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
        ({**NAMED, "checkpointLocation": "/c"}, "checkpointlocation is not supported"),
        ({**NAMED, "kafka.auto.offset.reset": "latest"}, "startingOffsets says where"),
        ({**NAMED, "kafka.enable.auto.commit": "true"}, "commits no offsets"),
        ({**NAMED, "kafka.value.deserializer": "x"}, "DataFrame operations decode"),
        ({**NAMED, "startingTimestamp": "noon"}, "not a time in milliseconds"),
        ({**NAMED, "startingOffsetsByTimestamp": "5"}, "of the shape"),
        ({**NAMED, "endingOffsetsByTimestamp": '{"t": {"0": "x"}}'}, "of the shape"),
        ({**NAMED, "startingOffsetsByTimestampStrategy": "earliest"}, "not one of error, latest"),
        ({**NAMED, "startingTimestamp": "6", "endingTimestamp": "5"}, "startingTimestamp 6 is past"),
        (
            {**NAMED, "startingOffsets": '{"t": {"0": 6}}', "endingOffsets": '{"t": {"0": 5}}'},
            "t-0: the starting offset 6 is past the ending one 5",
        ),
        ({**NAMED, "kafka.isolation.level": "serializable"}, "not one of read_uncommitted, read_committed"),
        ({**NAMED, "columns": ","}, "names no column"),
        ({**NAMED, "table": "rows"}, "table: rows is not one of records, batches"),
        ({**NAMED, "table": "offsets"}, "reads __consumer_offsets and nothing else"),
        ({**NAMED, "asOf": "5"}, "asOf is an option of table=latest"),
        ({**NAMED, "table": "latest", "asOf": "5", "endingTimestamp": "5"}, "two names of one thing"),
        ({**NAMED, "subscribe": "", "subscribePattern": ""}, "not subscribe and subscribePattern"),
        ({"path": "/data", "subscribePattern": " "}, "subscribePattern is empty"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(options: dict[str, str], said: str) -> None:
    with pytest.raises(Refused) as refusal:
        parse_options(options)
    assert said in str(refusal.value)


def test_the_first_of_three_ways_to_say_an_end_counts() -> None:
    """Options behind it are not even looked at, as in the connector."""
    every = {"endingTimestamp": "7", "endingOffsetsByTimestamp": '{"t": {"0": 8}}', "endingOffsets": "nonsense"}
    assert parse_options({**NAMED, **every}).ending == Timestamps(7)
    del every["endingTimestamp"]
    assert parse_options({**NAMED, **every}).ending == Timestamps({("t", 0): 8})
    assert parse_options({**NAMED, "startingTimestamp": "5", "startingOffsets": "latest"}).starting == Timestamps(5)


@pytest.mark.parametrize("name", ["maxOffsetsPerTrigger", "groupIdPrefix", "kafka.group.id", "kafka.fetch.max.bytes"])
def test_options_without_effect_on_files_are_taken_with_a_warning(name: str) -> None:
    with pytest.warns(UserWarning, match=f"the option {name.lower()} has no effect"):
        assert parse_options({**NAMED, name: "5"}) == parse_options(NAMED)


def test_a_state_as_of_a_time_or_of_offsets_ends_there() -> None:
    latest = {**NAMED, "table": "latest"}
    assert parse_options({**latest, "asOf": "1700000000000"}).ending == Timestamps(1_700_000_000_000)
    assert parse_options({**latest, "asOf": '{"t": {"0": 5}}'}).ending == {("t", 0): 5}


def test_views_of_internal_topics_select_them_and_read_committed() -> None:
    options = parse_options({"path": "/data", "table": "groups"})
    assert options.subscription.topics == ("__consumer_offsets",)
    assert options.is_committed


def test_options_change_a_value_and_leave_what_they_do_not_name() -> None:
    base = ReadOptions(
        ("/data",),
        TopicSelection(topics=("t",)),
        brokers=("a:1",),
        is_committed=True,
        snapshot="{}",
        stores=(StoreAddress("s3://b", "http://e"),),
    )
    assert parse_options({}, base=base) == base
    changed = parse_options({"moldau.tiered.storage.region": "r", "minPartitions": "3"}, base=base)
    assert changed == replace(base, stores=(StoreAddress("s3://b", "http://e", "r"),), tasks_min=3)
    moved = parse_options({"path": "/other", "kafka.isolation.level": "read_uncommitted"}, base=base)
    assert moved == replace(base, directories=("/other",), stores=(), is_committed=False)
    with pytest.raises(Refused, match="not topic and assign"):
        parse_options({"assign": '{"t": [0]}'}, base=base)
    with pytest.raises(Refused, match="table=topics describes files"):
        parse_options({"table": "topics"}, base=replace(base, directories=(), stores=()))
