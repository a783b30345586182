"""A topic as a dataset of PyArrow: what it can do is right, and nothing falls through to a dataset of files."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.dataset as ds  # type: ignore[import-untyped]
import pytest

import moldau
from moldau.tables.engines.topic_dataset import TopicDataset, TopicScanner
from moldau.tables.refusals import Refused
from tests.support.segments import mixed_batches, write_checkpoints, write_partition

NEWEST = (pc.field("offset") >= 390) & (pc.field("partition") == 0)


@pytest.fixture(scope="module")
def topic(tmp_path_factory: pytest.TempPathFactory) -> TopicDataset:
    directory = tmp_path_factory.mktemp("dataset")
    write_partition(directory, mixed_batches(40, 10))
    write_checkpoints(directory, {("t", 0): 400})
    return moldau.dataset(str(directory), "t")


def test_a_scan_has_the_columns_and_rows_that_are_asked_for(topic: TopicDataset) -> None:
    assert topic.schema.names[-1] == "headers"
    assert topic.to_table(["offset"], NEWEST).to_pydict() == {"offset": list(range(390, 400))}
    assert topic.count_rows() == 400 and topic.count_rows(NEWEST) == 10
    assert topic.filter(NEWEST).filter(pc.field("offset") > 395).count_rows() == 4
    assert topic.head(3, ["offset"]).to_pydict() == {"offset": [0, 1, 2]}
    assert topic.head(0).num_rows == 0
    assert sum(batch.num_rows for batch in topic.to_batches()) == 400
    scanner = topic.scanner(columns=["key"], filter=NEWEST, batch_size=10)
    assert scanner.projected_schema.names == ["key"] == scanner.to_reader().schema.names
    assert topic.sort_by([("offset", "descending")]).head(1).column("offset").to_pylist() == [399]
    assert pickle.loads(pickle.dumps(topic)).count_rows() == 400


def test_a_scan_of_no_column_counts_its_rows(topic: TopicDataset) -> None:
    """DataFusion's count(*)."""
    assert topic.to_table([]).shape == (400, 0)
    assert [batch.num_columns for batch in topic.scanner([], NEWEST).to_batches()] == [0]
    assert topic.scanner([], NEWEST).to_reader().read_all().num_rows == topic.head(10, []).num_rows == 10


def test_a_topic_is_scanned_as_one_fragment(topic: TopicDataset) -> None:
    """As DataFusion does."""
    for wanted, rows in ((None, 400), (NEWEST, 10)):
        (fragment,) = topic.get_fragments(wanted)
        assert fragment.physical_schema == topic.schema and fragment.partition_expression.equals(pc.scalar(True))
        assert fragment.scanner(topic.schema, columns=["offset"]).to_table().shape == (rows, 1)


@pytest.mark.parametrize("table", ["topics", "segments", "groups", "transactions", "offsets"])
def test_the_rows_of_each_table_are_counted(tmp_path: Path, table: str) -> None:
    for topic in ("t", "__consumer_offsets", "__transaction_state"):
        write_partition(tmp_path, [], topic=topic)
    write_checkpoints(tmp_path, {(topic, 0): 0 for topic in ("t", "__consumer_offsets", "__transaction_state")})
    described = moldau.dataset(str(tmp_path), table=table)
    assert described.count_rows() == described.to_table().num_rows == (3 if table in ("topics", "segments") else 0)


def test_what_a_topic_does_not_have_is_refused(topic: TopicDataset) -> None:
    whole: Any = topic
    calls: list[Callable[[], object]] = [
        lambda: whole.take([1]),
        lambda: whole.replace_schema(topic.schema),
        lambda: whole.scanner().take([1]),
        lambda: whole.scanner().scan_batches(),
        lambda: whole.scanner({"a": pc.field("offset")}),
    ]
    for call in calls:
        with pytest.raises(Refused):
            call()


@pytest.mark.parametrize(("ours", "theirs"), [(TopicDataset, ds.Dataset), (TopicScanner, ds.Scanner)])
def test_every_method_is_our_own(ours: type, theirs: type) -> None:
    """An inherited one would run on a dataset that does not exist, and end the process."""
    makers = {"from_batches", "from_dataset", "from_fragment"}
    names = {name for name in vars(theirs) if not name.startswith("_")} - makers
    assert names <= set(vars(ours)), sorted(names - set(vars(ours)))
