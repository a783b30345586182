"""Topics as views of DuckDB: the columns and the WHERE of a query reach the plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import moldau
from moldau.tables.engines.topic_dataset import TopicDataset, TopicScanner
from moldau.tables.refusals import Refused
from tests.support.segments import mixed_batches, write_checkpoints, write_partition

pytest.importorskip("duckdb")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("duckdb")
    write_partition(directory, mixed_batches(40, 10))
    write_partition(directory, mixed_batches(5, 10), partition=1)
    write_partition(directory, mixed_batches(2, 10), topic="other.topic")
    write_checkpoints(directory, {("t", 0): 400, ("t", 1): 50, ("other.topic", 0): 20})
    return directory


def test_each_topic_is_a_view(directory: Path) -> None:
    con = moldau.duckdb(None, directory)
    assert con.execute("select count(*) from t").fetchall() == [(450,)]
    assert con.execute('select max("offset") from "other.topic"').fetchall() == [(19,)]
    found = con.execute("select topic, partition, highWatermark from moldau_topics order by all").fetchall()
    assert found == [("other.topic", 0, 20), ("t", 0, 400), ("t", 1, 50)]
    found = con.execute(
        'select a."offset" from t a join "other.topic" b using ("offset") where a.partition = 1'
    ).fetchall()
    assert sorted(found) == [(each,) for each in range(20)]


def test_topics_that_differ_by_case_are_never_taken_for_one_another(tmp_path: Path) -> None:
    for topic, batches in (("order", 3), ("Order", 5), ("moldau_topics", 1)):
        write_partition(tmp_path, mixed_batches(batches, 10), topic=topic)
    write_checkpoints(tmp_path, {("order", 0): 30, ("Order", 0): 50, ("moldau_topics", 0): 10})
    con = moldau.duckdb(None, tmp_path)
    for name in ("order", "Order", "ORDER"):
        with pytest.raises(Exception, match="Order and order are one name in SQL"):
            con.execute(f'select count(*) from "{name}"').fetchall()
    assert con.execute("select count(*) from moldau_topics").fetchall() == [(3,)]
    named = moldau.duckdb(None, tmp_path, names={"order": "a", "Order": "b", "moldau_topics": "c"})
    found = named.execute("select (select count(*) from a), (select count(*) from b), (select count(*) from c)")
    assert found.fetchall() == [(30, 50, 10)]
    assert moldau.duckdb(None, tmp_path, names="Order").execute('select count(*) from "order"').fetchall() == [(50,)]
    for names in (["order", "Order"], {"order": "x", "Order": "X"}, ["moldau_topics"]):
        with pytest.raises(Refused, match="are one name in SQL"):
            moldau.duckdb(None, tmp_path, names=names)


def test_a_query_reads_what_is_there_then(tmp_path: Path) -> None:
    end = write_partition(tmp_path, mixed_batches(4, 10))
    write_checkpoints(tmp_path, {("t", 0): end - 10})
    assert moldau.duckdb(None, tmp_path, names="t").execute("select count(*) from t").fetchall() == [(end - 10,)]
    con = moldau.duckdb(None, tmp_path, names={"t": "orders"})
    assert con.execute("select count(*) from orders").fetchall() == [(end - 10,)]
    write_checkpoints(tmp_path, {("t", 0): end})
    assert con.execute("select count(*) from orders").fetchall() == [(end,)]


def test_columns_and_predicates_reach_the_scan(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scanned: list[tuple[Any, str]] = []
    whole = TopicDataset.scanner

    def scanner(self: TopicDataset, columns: Any = None, filter: Any = None, **further: Any) -> TopicScanner:
        scanned.append((columns, str(filter)))
        return whole(self, columns, filter, **further)

    monkeypatch.setattr(TopicDataset, "scanner", scanner)
    con = moldau.duckdb(None, directory, names=["t"])
    rows = con.execute('select key from t where "offset" >= 45 and partition = 1').fetchall()
    assert len(rows) == 5
    ((columns, pushed),) = scanned
    assert "key" in columns and "value" not in columns
    assert "offset >= 45" in pushed and "partition == 1" in pushed
