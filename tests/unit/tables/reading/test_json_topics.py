"""A topic of plain JSON as columns, by a schema that is given or taken from a sample: by each way of reading."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pytest

import moldau
from moldau.broker.cli.command import main
from moldau.broker.cli.read import SAMPLE_ROWS
from moldau.protocol.record_builder import Record, build_batch
from moldau.tables.refusals import Refused
from moldau.tables.values import topic_types
from moldau.tables.values.registry import ValueNotDecoded
from moldau.tables.values.topic_types import NoSample
from tests.support.segments import write_checkpoints, write_partition

VALUES: list[Any] = [{"id": 1, "in": {"x": 1.5}}, None, {"id": 2, "name": "žába", "odd": 1}, {"id": 3, "odd": "one"}]
LAST = b'{"id": "four"}'
OPEN = ("_additional_properties", pa.string())
KIND = pa.struct([("id", pa.int64()), ("in", pa.struct([("x", pa.float64()), OPEN])), ("name", pa.string()), OPEN])


@pytest.fixture
def place(tmp_path: Path) -> str:
    """A topic whose last value does not fit the columns of the others, and one without JSON."""
    values = [each and json.dumps(each).encode() for each in VALUES] + [LAST]
    ends = {}
    for topic, held in (("t", values), ("raw", [b"plain"])):
        batch = build_batch([Record(b"k", value, 1) for value in held], base_offset=0)
        ends[(topic, 0)] = write_partition(tmp_path / "logs", [batch], topic=topic)
    write_checkpoints(tmp_path / "logs", ends)
    return str(tmp_path / "logs")


def test_a_sample_gives_the_columns(place: str) -> None:
    rows = moldau.read_topic(place, "t", schema="sample", sample_rows=4, end=4).read_all()
    assert rows.schema.field("value").type == KIND
    first, null, second, third = rows["value"].to_pylist()
    assert first == {"id": 1, "in": {"x": 1.5, OPEN[0]: None}, "name": None, OPEN[0]: None} and null is None
    assert (second["name"], second[OPEN[0]], third[OPEN[0]]) == ("žába", '{"odd": 1}', '{"odd": "one"}')


def test_the_type_is_fixed_when_the_sample_was_taken(place: str) -> None:
    topic = moldau.dataset(place, "t", schema="sample", sample_rows=1, on_error="keep")
    assert topic.schema.field("value").type == pa.struct([("id", pa.int64()), ("in", KIND.field("in").type), OPEN])
    kept = topic.to_table(["value", "misfit"])
    assert kept["value"].null_count == 2 and kept["value"][2].as_py()[OPEN[0]] == '{"name": "žába", "odd": 1}'
    assert kept["misfit"].to_pylist() == [None, None, None, None, LAST]


def test_a_value_that_does_not_fit_is_named_null_or_kept(place: str) -> None:
    with pytest.raises(ValueNotDecoded, match=r"topic t, partition 0, offset 4: .* value.id does not hold \"four\""):
        moldau.read_topic(place, "t", schema=KIND).read_all()
    assert moldau.read_topic(place, "t", schema=KIND, on_error="null").read_all()["value"].null_count == 2
    rows = moldau.read_topic(place, "t", schema=KIND, on_error="keep").read_all()
    assert rows.schema.names[:3] == ["key", "value", "misfit"] and rows["misfit"].to_pylist()[4] == LAST
    found = moldau.read_topic(
        place, "t", schema=KIND, on_error="keep", columns=["misfit"], filter=pc.field("misfit").is_valid()
    )
    assert found.read_all().to_pydict() == {"misfit": [LAST]}
    # A misfit by values that the library of Arrow refuses: an integer that a double does not hold.
    doubles = pa.struct([("id", pa.float64()), OPEN])
    strict = moldau.read_topic(place, "t", schema=doubles, on_error="keep", columns=["misfit"]).read_all()
    assert strict["misfit"].null_count == 4


def test_properties_without_a_field_are_misfits_of_a_type_without_a_place_for_them(place: str) -> None:
    with pytest.raises(ValueNotDecoded, match=r"offset 0: value\.in is a property that the schema does not allow"):
        moldau.read_topic(place, "t", schema=pa.struct([("id", pa.int64())])).read_all()


def test_a_schema_that_was_printed_gives_the_same_columns(place: str, tmp_path: Path) -> None:
    schema = moldau.json_schema(place, "t", end=4)
    assert moldau.read_topic(place, "t", schema=schema).schema.field("value").type == KIND
    file = tmp_path / "schema.json"
    file.write_text(json.dumps(schema))
    assert moldau.read_topic(place, "t", schema=file, on_error="null").read_all()["value"].null_count == 2


def test_a_sample_is_taken_all_over_the_read(place: str, tmp_path: Path) -> None:
    """The newest values of a topic of several segments and partitions are in the sample."""
    ends = {}
    for partition in range(3):
        records = [Record(b"k", json.dumps({f"p{partition}": number}).encode(), 1) for number in range(50)]
        ends[("many", partition)] = write_partition(
            tmp_path / "many", [build_batch(records, base_offset=0)], topic="many", partition=partition
        )
    write_checkpoints(tmp_path / "many", ends)
    kind = moldau.read_topic(tmp_path / "many", "many", schema="sample", sample_rows=3).schema.field("value").type
    assert kind == pa.struct([("p0", pa.int64()), ("p1", pa.int64()), ("p2", pa.int64()), OPEN])


def test_what_cannot_be_is_refused(place: str) -> None:
    with pytest.raises(NoSample, match="none of 1 values gives a type"):
        moldau.read_topic(place, "raw", schema="sample")
    with pytest.raises(Refused, match="schema: table=batches has no values"):
        moldau.batches(place, "t", schema="sample")
    with pytest.raises(Refused, match="sample_rows: 0 is below 1"):
        moldau.read_topic(place, "t", schema="sample", sample_rows=0)
    with pytest.raises(Refused, match="on_error: keep is for values that are decoded"):
        moldau.read_topic(place, "t", on_error="keep")
    with pytest.raises(Refused, match="on_error: keep needs the rows of a read"):
        moldau.values(pa.table({"value": [b"{}"]}), registry=place, on_error="keep")


def test_the_other_engines_see_the_fields(place: str) -> None:
    pytest.importorskip("duckdb")
    con = moldau.duckdb(None, place, schema="sample", sample_rows=4, on_error="keep")
    assert con.sql("select value.id, value.name from t where value.id >= 2").fetchall() == [(2, "žába"), (3, None)]
    assert con.sql("select misfit from t where misfit is not null").fetchall() == [(LAST,)]
    assert con.sql("select value from raw").fetchall() == [(b"plain",)]
    with pytest.raises(NoSample):
        moldau.duckdb(None, place, names="raw", schema="sample")
    polars = pytest.importorskip("polars")
    frame = moldau.polars(place, "t", schema="sample", sample_rows=4, on_error="null")
    wanted = frame.filter(polars.col("value").struct.field("id") >= 2).select("offset")
    assert wanted.collect().to_series().to_list() == [2, 3]


def read(place: str, *arguments: str) -> int:
    return main(["read", "--path", place, "--topic", "t", *arguments])


def test_the_command_has_a_column_for_each_field(place: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    asked = ("--schema", "sample", "--sample", "4", "--misfits", "keep", "--columns", "offset,value,misfit")
    assert read(place, *asked, "--format", "csv") == 0
    assert capfdbinary.readouterr().out.decode().splitlines() == [
        '"offset","value.id","value.in","value.name","value._additional_properties","misfit"',
        '0,1,"{""x"": 1.5, ""_additional_properties"": null}",,,',
        "1,,,,,",
        '2,2,,"žába","{""odd"": 1}",',
        '3,3,,,"{""odd"": ""one""}",',
        '4,,,,,"{""id"": ""four""}"',
    ]
    assert read(place, *asked, "--format", "table", "--limit", "3") == 0
    table = capfdbinary.readouterr().out.decode().splitlines()
    assert table[0].split()[:4] == ["offset", "value.id", "value.in", "value.name"]
    assert table[4].split() == ["2", "2", "null", "žába", '{"odd":', "1}", "null"]
    assert read(place, *asked, "--format", "jsonl", "--limit", "3") == 0
    lines = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    assert lines[1] == {"offset": 1, "value": None, "misfit": None}
    assert lines[2]["value"] == {"id": 2, "in": None, "name": "žába", OPEN[0]: {"odd": 1}}


def test_the_command_prints_a_schema_and_takes_it(
    place: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert SAMPLE_ROWS == topic_types.SAMPLE_ROWS
    assert read(place, "--show-schema", "--end", "4") == 0
    file = tmp_path / "schema.json"
    file.write_bytes(capfdbinary.readouterr().out)
    assert json.loads(file.read_bytes()) == moldau.json_schema(place, "t", end=4)
    assert read(place, "--schema", str(file)) == 1
    said = capfdbinary.readouterr().err.decode()
    assert "topic t, partition 0, offset 4: the value does not fit the column" in said and "--misfits keep" in said
    sql = ("--sql", "select sum(value.id) total from t", "--format", "csv")
    assert main(["read", "--path", place, *sql, "--schema", str(file), "--topic", "t", "--misfits", "null"]) == 0
    assert capfdbinary.readouterr().out.decode().splitlines()[1] == "6"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--topic", "t", "--sample", "5"], "--sample: it is for --schema sample and --show-schema"),
        (["--topic", "t", "--show-schema", "--schema", "sample"], "without --schema"),
        (["--show-schema", "--table", "topics"], "--topic is missing"),
        (["--topic", "t", "--schema", "gone.json"], "schema gone.json: No such file or directory"),
        (["--topic", "raw", "--schema", "sample"], "none of 1 values gives a type"),
        (["--topic", "t", "--misfits", "keep"], "keep is for values that are decoded"),
    ],
)
def test_mistakes_of_the_command(
    place: str, arguments: list[str], said: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main(["read", "--path", place, *arguments]) != 0
    assert said in capfdbinary.readouterr().err.decode()
