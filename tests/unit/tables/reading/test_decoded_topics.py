"""A topic whose values are decoded by the schemas that their frames name: as JSON, by each way of reading."""

from __future__ import annotations

import json
from pathlib import Path
from struct import pack

import pyarrow.compute as pc  # type: ignore[import-untyped]
import pytest

import moldau
from moldau.broker.cli.command import main
from moldau.protocol.record_builder import Record, build_batch
from moldau.tables.refusals import Refused
from moldau.tables.values.registry import ValueNotDecoded
from tests.support.segments import write_checkpoints, write_partition

TIME_MS = 1_700_000_000_000


@pytest.fixture
def place(tmp_path: Path) -> str:
    """A topic with two values, a null and, as its last record, one that is not framed."""
    values = [framed({"id": 1, "name": "Brno"}), framed({"id": 2, "name": "žába"}), None, b"plain"]
    batch = build_batch([Record(b"k", value, TIME_MS) for value in values], base_offset=0)
    end = write_partition(tmp_path / "logs", [batch])
    write_checkpoints(tmp_path / "logs", {("t", 0): end})
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "7.json").write_text("{}")
    return str(tmp_path / "logs")


def framed(value: object) -> bytes:
    return pack(">bi", 0, 7) + json.dumps(value).encode()


def schemas_of(place: str) -> str:
    return str(Path(place).parent / "schemas")


def test_values_are_json(place: str) -> None:
    rows = moldau.read_topic(place, "t", end=3, registry=schemas_of(place)).read_all()
    assert rows.schema.names == moldau.read_topic(place, "t").schema.names
    assert rows["value"].to_pylist() == ['{"id": 1, "name": "Brno"}', '{"id": 2, "name": "žába"}', None]
    only = moldau.read_topic(place, "t", end=2, columns=["value"], registry=schemas_of(place)).read_all()
    assert only.schema.names == ["value"] and only.num_rows == 2


def test_a_filter_sees_the_decoded_value(place: str) -> None:
    wanted = pc.match_substring(pc.field("value"), "Brno")
    found = moldau.read_topic(place, "t", end=3, columns=["offset"], filter=wanted, registry=schemas_of(place))
    assert found.read_all().to_pydict() == {"offset": [0]}


def test_a_value_that_cannot_be_decoded_is_named_or_null(place: str) -> None:
    with pytest.raises(ValueNotDecoded, match="topic t, partition 0, offset 3: the value is not framed"):
        moldau.read_topic(place, "t", registry=schemas_of(place)).read_all()
    rows = moldau.read_topic(place, "t", registry=schemas_of(place), on_error="null").read_all()
    assert rows["value"].null_count == 2 and rows.num_rows == 4
    # Without the column no value is decoded.
    assert moldau.read_topic(place, "t", columns=["offset"], registry=schemas_of(place)).read_all().num_rows == 4


def test_what_has_no_values_and_what_is_no_registry_is_refused(place: str) -> None:
    with pytest.raises(Refused, match="registry: table=batches has no values"):
        moldau.batches(place, "t", registry=schemas_of(place))
    with pytest.raises(Refused, match="neither the URL of a schema registry"):
        moldau.read_topic(place, "t", registry=f"{place}/gone")
    with pytest.raises(Refused, match="on_error: skip is none of fail, null and keep"):
        moldau.read_topic(place, "t", registry=schemas_of(place), on_error="skip")  # type: ignore[arg-type]


def test_the_other_engines_see_the_same_values(place: str) -> None:
    pytest.importorskip("duckdb")
    con = moldau.duckdb(None, place, registry=schemas_of(place), on_error="null")
    found = con.sql("select value->>'$.name' from t where value->>'$.id' = '2'").fetchall()
    assert found == [("žába",)]
    polars = pytest.importorskip("polars")
    frame = moldau.polars(place, "t", registry=schemas_of(place), on_error="null")
    assert frame.filter(polars.col("offset") == 0).select("value").collect().item() == '{"id": 1, "name": "Brno"}'


def test_the_command_shows_them(place: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    asked = ["read", "--path", place, "--topic", "t", "--registry", schemas_of(place), "--format", "csv"]
    assert main([*asked, "--columns", "value", "--limit", "1", "--misfits", "null"]) == 0
    assert capfdbinary.readouterr().out.decode().splitlines() == ['"value"', '"{""id"": 1, ""name"": ""Brno""}"']
    assert main([*asked[:-1], "jsonl", "--columns", "value,offset", "--end", "3"]) == 0
    assert [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()] == [
        {"value": {"id": 1, "name": "Brno"}, "offset": 0},
        {"value": {"id": 2, "name": "žába"}, "offset": 1},
        {"value": None, "offset": 2},
    ]
    assert main(asked) == 1
    said = capfdbinary.readouterr().err.decode()
    assert "topic t, partition 0, offset 3: the value is not framed" in said and "--misfits null" in said
    sql = ["read", "--path", place, "--registry", schemas_of(place), "--format", "csv", "--misfits", "null"]
    assert main([*sql, "--sql", "select count(value) n from t"]) == 0
    assert capfdbinary.readouterr().out.decode().splitlines()[1] == "2"
