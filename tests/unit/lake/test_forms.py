"""Keys and values in their forms: as Kafka's serializers, Kafka Connect and Debezium write them, flat and nested, read
back by pyiceberg, Polars and DuckDB, over restarts and before the commit (a live table).

`facts/debezium_events.txt` was written by Envelope of debezium-core 3.3.1 and JsonConverter of Kafka 4.3.1.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from math import isnan
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyiceberg", reason="the extra moldau[iceberg] is not installed")

import moldau
from moldau.protocol.record_builder import Record
from moldau.tables.refusals import Refused
from moldau.tables.values.registry import ValueNotDecoded
from tests.support.lake_stage import START_MS, LakeStage, framed

FACTS = dict(
    line.split("\t", 1)
    for line in (Path(__file__).parent / "facts" / "debezium_events.txt").read_text("utf-8").splitlines()
)
ROW: dict[str, Any] = {
    "type": "record",
    "name": "Value",
    "namespace": "srv.orders",
    "fields": [{"name": "id", "type": "int"}, {"name": "name", "type": ["null", "string"]}],
}
WIDER_ROW = {
    **ROW,
    "fields": [{"name": "id", "type": "long"}, *ROW["fields"][1:], {"name": "vip", "type": ["null", "boolean"]}],
}
KEY = {"type": "record", "name": "Key", "namespace": "srv.orders", "fields": [{"name": "id", "type": "int"}]}


def envelope_of(row: dict[str, Any]) -> dict[str, Any]:
    """The schema of change events as Debezium's Avro converter registers it."""
    return {
        "type": "record",
        "name": "Envelope",
        "namespace": "srv.orders",
        "fields": [
            {"name": "before", "type": ["null", row], "default": None},
            {"name": "after", "type": ["null", "Value"], "default": None},
            {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": ["null", "long"], "default": None},
        ],
    }


@pytest.fixture
def stage(tmp_path: Path) -> LakeStage:
    return LakeStage(tmp_path)


def put(stage: LakeStage, *records: tuple[bytes | None, bytes | None]) -> None:
    stage.append([Record(key, value, START_MS) for key, value in records])


def by_polars(stage: LakeStage) -> list[dict[str, Any]]:
    """The rows as Polars reads them, in the order of their offsets."""
    polars = pytest.importorskip("polars", reason="the extra moldau[polars] is not installed")
    rows: list[dict[str, Any]] = (
        polars.scan_iceberg(stage.table()).collect().sort("partition", "offset").to_arrow().to_pylist()
    )
    return rows


def by_duckdb(stage: LakeStage) -> list[dict[str, Any]]:
    """The rows of the table alone as DuckDB has them, in the order of their offsets."""
    pytest.importorskip("duckdb", reason="the extra moldau[sql] is not installed")
    con = moldau.table(stage.warehouse, "t").duckdb()
    rows: list[dict[str, Any]] = con.sql('select * from t order by partition, "offset"').to_arrow_table().to_pylist()
    return rows


def columns(stage: LakeStage, *names: str) -> list[tuple[Any, ...]]:
    """Columns of the rows, as pyiceberg, Polars and DuckDB read them alike."""
    found = [tuple(row[name] for name in names) for row in stage.rows()]
    for other in (by_polars, by_duckdb):
        assert found == [tuple(row[name] for name in names) for row in other(stage)], other.__name__
    return found


def shown(key: Any) -> Any:
    """A key without the column for what its schema does not name."""
    return {name: key[name] for name in key if name != "_additional_properties"} if isinstance(key, dict) else key


def live(stage: LakeStage, **further: Any) -> list[dict[str, Any]]:
    rows: Sequence[dict[str, Any]] = (
        moldau.table(stage.warehouse, "t", live=str(stage.logs), **further).to_table().to_pylist()
    )
    return sorted(rows, key=lambda row: (row["partition"], row["offset"]))


@pytest.mark.parametrize(
    ("key_type", "written", "values"),
    [
        ("string", [b"a", b"\xc3\xa9"], ["a", "é"]),
        ("long", [(5).to_bytes(8, "big"), (-1).to_bytes(8, "big", signed=True)], [5, -1]),
        ("int", [(7).to_bytes(4, "big"), (8).to_bytes(4, "big")], [7, 8]),
        ("double", [bytes.fromhex("3ff8000000000000"), bytes.fromhex("4000000000000000")], [1.5, 2.0]),
        ("connect", [b'{"schema":{"type":"int64"},"payload":3}', b'{"schema":{"type":"int32"},"payload":4}'], [3, 4]),
        ("sample", [b'{"id":1,"of":"x"}', b'{"id":2,"of":"y"}'], [{"id": 1, "of": "x"}, {"id": 2, "of": "y"}]),
    ],
)
@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_key_with_a_type(
    stage: LakeStage, mode: str, key_type: str, written: list[bytes], values: list[object]
) -> None:
    put(stage, *((key, b"1") for key in written))
    stage.follow(mode=mode, key_type=key_type)
    for reader in (LakeStage.rows, by_polars, by_duckdb):
        assert [shown(row["key"]) for row in reader(stage)] == values, reader.__name__
    put(stage, (written[0], b"2"), (written[1], None))
    expected = [(b"2", 2)] if mode == "upsert" else [(b"1", 0), (b"1", 1), (b"2", 2), (None, 3)]
    assert [(row["value"], row["offset"]) for row in live(stage)] == expected
    stage.follow(mode=mode, key_type=key_type)
    assert [(row["value"], row["offset"]) for row in stage.rows()] == expected
    assert stage.verified().findings == []


def test_a_key_that_is_not_of_its_type_does_not_fit(stage: LakeStage) -> None:
    put(stage, (b"12345678", b"1"), (b"1234", b"2"), (None, b"3"))
    with pytest.raises(ValueNotDecoded, match="t-0, offset 1: 4 bytes are not of the type long"):
        stage.follow(key_type="long")
    assert stage.follow(key_type="long", misfits="skip").progress.misfits_count == 1
    assert columns(stage, "key", "offset") == [(int.from_bytes(b"12345678", "big"), 0), (None, 2)]


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("kind", ["string", "long"])
def test_a_key_that_decodes_to_null_has_no_row_in_a_table_by_key(stage: LakeStage, kind: str, *, flat: bool) -> None:
    optional: Any = ["null", kind]
    stage.put_schema(1, optional)
    stage.put_schema(2, ROW)
    value = framed(2, ROW, {"id": 1, "name": None})
    some = {"string": "k", "long": 7}[kind]
    chosen = {"registry": str(stage.schemas), "key_type": "registry", "is_flat": flat}
    none = framed(1, optional, None)
    put(stage, (framed(1, optional, some), value), (none, value), (none, None))
    with pytest.raises(ValueNotDecoded, match="t-0, offset 1: the key is null; --misfits skip"):
        stage.follow(mode="upsert", **chosen)
    stage.follow(mode="upsert", misfits="dead-letter", **chosen)
    assert columns(stage, "key", "offset") == [(some, 0)]
    assert stage.offsets("t_dead_letters") == [(0, 1), (0, 2)]
    put(stage, (none, value), (framed(1, optional, some), value))
    live_rows = live(stage, registry=str(stage.schemas), misfits="skip")
    assert [(row["key"], row["offset"]) for row in live_rows] == [(some, 4)]
    assert stage.verified().findings == []


def test_a_key_of_json_may_be_null_in_a_table_of_records(stage: LakeStage) -> None:
    put(stage, (b'"k"', b"1"), (b"null", b"2"))
    stage.follow(key_type="sample")
    assert columns(stage, "key", "value") == [("k", b"1"), (None, b"2")]


def test_plain_json_by_a_sample_which_is_fixed_then(stage: LakeStage) -> None:
    put(stage, (b"a", b'{"id":1,"at":{"x":1}}'), (b"b", b'{"id":2,"note":"n"}'))
    stage.follow(schema="sample")
    put(stage, (b"c", b'{"id":3,"more":[1]}'), (b"d", b'{"id":"x"}'))
    assert [row["value"]["id"] for row in live(stage, misfits="skip")] == [1, 2, 3]
    stage.follow(schema="sample", misfits="skip")
    found = columns(stage, "value")
    assert [(value["id"], value["note"]) for (value,) in found] == [(1, None), (2, "n"), (3, None)]
    assert json.loads(found[2][0]["_additional_properties"]) == {"more": [1]}


def test_plain_json_by_a_file_that_may_grow(stage: LakeStage, tmp_path: Path) -> None:
    file = tmp_path / "order.json"
    file.write_text(json.dumps({"type": "object", "properties": {"id": {"type": "integer"}}}))
    put(stage, (b"a", b'{"id":1,"note":"n"}'))
    stage.follow(schema=str(file))
    put(stage, (b"a", b'{"id":2}'))
    assert [row["value"]["id"] for row in live(stage)] == [1, 2]
    file.write_text(
        json.dumps({"type": "object", "properties": {"id": {"type": "integer"}, "note": {"type": "string"}}})
    )
    put(stage, (b"a", b'{"id":3,"note":"m"}'))
    stage.follow(schema=str(file))
    assert [(value["id"], value["note"]) for (value,) in columns(stage, "value")] == [(1, None), (2, None), (3, "m")]


@pytest.mark.parametrize("form", ["with schema", "plain"])
def test_the_events_that_debezium_writes(stage: LakeStage, form: str) -> None:
    schema = "connect" if form == "with schema" else "sample"
    key = FACTS[f"{form}, key"].encode()
    put(stage, (key, FACTS[f"{form}, create"].encode()))
    stage.follow(mode="auto", schema=schema, key_type=schema, envelope="debezium")
    (row,) = stage.rows()
    assert row["key"]["id"] == 1 and row["value"]["id"] == 1 and row["value"]["big"] == 9_007_199_254_740_993
    value = {name: each for name, each in row["value"].items() if name != "ratio"}
    for other in (by_polars, by_duckdb):
        (seen,) = other(stage)
        assert {name: each for name, each in seen["value"].items() if name != "ratio"} == value, other.__name__
    if form == "with schema":
        assert value == {
            "id": 1,
            "name": "é",
            "price": Decimal("12.30"),
            "at": 1_700_000_000_000_001,
            "day": 19_000,
            "cday": date(2022, 1, 8),
            "cat": datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC),
            "ctime": time(1, 0, 0, 123_000),
            "zoned": "2023-01-01T00:00:00Z",
            "blob": b"\0\1\xff",
            "small": 5,
            "big": 9_007_199_254_740_993,
            "ok": True,
            "dflt": 7,
            "tags": ["a", None],
            "smap": [("k", 1)],
            "imap": [(3, 4)],
        }
        assert isnan(row["value"]["ratio"])
    put(stage, (key, FACTS[f"{form}, delete"].encode()), (key, None))
    assert live(stage) == []
    put(stage, (key, FACTS[f"{form}, truncate"].encode()))
    with pytest.raises(ValueNotDecoded, match="offset 3: the change event is a truncate of the source"):
        stage.follow(mode="auto", schema=schema, key_type=schema, envelope="debezium")
    stage.follow(mode="auto", schema=schema, key_type=schema, envelope="debezium", misfits="dead-letter")
    assert stage.rows() == [] and stage.offsets("t_dead_letters") == [(0, 3)]
    assert stage.verified().findings == []


def price_event(price: str) -> bytes:
    decimal = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "18"}}
    schema = json.dumps({"type": "struct", "fields": [decimal | {"field": "price"}]})
    return f'{{"schema": {schema}, "payload": {{"price": {price}}}}}'.encode()


def test_decimals_as_numbers_keep_their_digits(stage: LakeStage) -> None:
    """The converter's `decimal.format=NUMERIC` writes numbers with all digits, of which a float has 17."""
    texts = [
        "1.000000000000000001",
        "12345678901234567890.123456789012345678",
        "-0.000000000000000001",
        "1E+3",
        "7",
        "0.5",
    ]
    put(stage, *((b"k", price_event(text)) for text in texts))
    stage.follow(schema="connect")
    assert [value["price"] for (value,) in columns(stage, "value")] == [Decimal(text) for text in texts]


@pytest.mark.parametrize("text", ["1e-19", "1.0000000000000000001", "1e-41", "123456789012345678901", "1e40", "1e400"])
def test_a_decimal_as_a_number_that_its_scale_does_not_hold(stage: LakeStage, text: str) -> None:
    put(stage, (b"k", price_event(text)))
    with pytest.raises(ValueNotDecoded, match=r"value.price does not hold"):
        stage.follow(schema="connect")


def test_change_events_in_avro_whose_source_gets_a_column(stage: LakeStage) -> None:
    stage.put_schema(1, envelope_of(ROW))
    stage.put_schema(2, envelope_of(WIDER_ROW))
    stage.put_schema(3, KEY)
    chosen: dict[str, Any] = {
        "registry": str(stage.schemas),
        "key_type": "registry",
        "envelope": "debezium",
        "mode": "auto",
    }

    def event(op: str, before: Any, after: Any, number: int = 1) -> bytes:
        row = ROW if number == 1 else WIDER_ROW
        return framed(number, envelope_of(row), {"op": op, "before": before, "after": after, "ts_ms": 1})

    def key(number: int) -> bytes:
        return framed(3, KEY, {"id": number})

    put(stage, *((key(each), event("r", None, {"id": each, "name": f"n{each}"})) for each in range(4)))
    stage.follow(**chosen)
    put(
        stage,
        (key(1), event("u", {"id": 1, "name": "n1"}, {"id": 1, "name": None})),
        (key(2), event("d", {"id": 2, "name": "n2"}, None)),
        (key(2), None),
        (key(3), event("d", {"id": 3, "name": "n3"}, None)),
        (key(3), event("c", None, {"id": 3, "name": "new", "vip": True}, 2)),
    )
    expected = [(0, "n0", None), (1, None, None), (3, "new", True)]
    assert [tuple(row["value"].values()) for row in live(stage, registry=str(stage.schemas))] == expected
    stage.follow(**chosen)
    assert [tuple(value.values()) for (value,) in columns(stage, "value")] == expected
    assert columns(stage, "key") == [({"id": 0},), ({"id": 1},), ({"id": 3},)]
    put(stage, (key(0), event("d", {"id": 0, "name": "n0"}, None)))  # The connector may write no tombstones.
    assert [tuple(row["value"].values()) for row in live(stage, registry=str(stage.schemas))] == expected[1:]
    assert stage.verified().findings == []


NESTED = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "Id", "type": "int"},
        {"name": "offset", "type": ["null", "string"]},
        {
            "name": "Customer",
            "type": ["null", {"type": "record", "name": "C", "fields": [{"name": "Name", "type": ["null", "string"]}]}],
        },
        {
            "name": "Lines",
            "type": {
                "type": "array",
                "items": {"type": "record", "name": "L", "fields": [{"name": "Sku", "type": "string"}]},
            },
        },
    ],
}


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_flat_table_has_a_column_for_each_field(stage: LakeStage, mode: str) -> None:
    stage.put_schema(1, NESTED)
    stage.put_schema(2, KEY)
    chosen: dict[str, Any] = {"registry": str(stage.schemas), "key_type": "registry", "is_flat": True, "mode": mode}

    def order(number: int, **further: Any) -> tuple[bytes, bytes]:
        value = {"Id": number, "offset": "o", "Customer": {"Name": "n"}, "Lines": [{"Sku": "s"}], **further}
        return framed(2, KEY, {"id": number}), framed(1, NESTED, value)

    put(stage, order(1), order(2, Customer=None, Lines=[]))
    stage.follow(**chosen)
    names = ("key_id", "partition", "offset", "id", "value_offset", "customer_name", "lines")
    expected: list[tuple[Any, ...]] = [(1, 0, 0, 1, "o", "n", [{"sku": "s"}]), (2, 0, 1, 2, "o", None, [])]
    assert columns(stage, *names) == expected
    assert all(name == name.lower() for name in stage.table().schema().column_names)
    put(stage, order(1, offset=None))
    last = (1, 0, 2, 1, None, "n", [{"sku": "s"}])
    expected = [*expected, last] if mode == "append" else [expected[1], last]
    assert [tuple(row[name] for name in names) for row in live(stage, registry=str(stage.schemas))] == expected
    stage.follow(**chosen)
    assert columns(stage, *names) == expected


def test_a_flat_table_of_a_sample_goes_on_after_a_restart(stage: LakeStage) -> None:
    put(stage, (b"a", b'{"Id":1,"Of":{"X":1}}'))
    stage.follow(schema="sample", is_flat=True)
    put(stage, (b"a", b'{"Id":2,"Of":{"X":2,"Y":3}}'))
    stage.follow(schema="sample", is_flat=True)
    assert columns(stage, "id", "of_x", "of__additional_properties") == [(1, 1, None), (2, 2, '{"Y": 3}')]


def test_two_fields_that_would_be_one_column_do_not_fit(stage: LakeStage) -> None:
    put(stage, (b"a", b'{"a_b":1,"a":{"b":1}}'))
    with pytest.raises(ValueNotDecoded, match="two fields of the value would be the column a_b of a flat table"):
        stage.follow(schema="sample", is_flat=True)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"key_type": "string"},
            "begun with keys: binary, values: json, envelope: none, and this run has keys: string",
        ),
        ({"is_flat": True}, "this run has keys: binary, values: json, envelope: none, flat"),
        ({"envelope": "debezium", "mode": "append"}, "--envelope makes a table by key"),
        ({"schema": None, "envelope": "debezium"}, "--envelope debezium needs --registry or --schema"),
        ({"registry": "schemas"}, "leave out --schema or --registry"),
        ({"key_type": "registry"}, "--key-type registry needs --registry"),
    ],
)
def test_what_would_make_other_rows_is_refused(stage: LakeStage, changed: dict[str, Any], message: str) -> None:
    put(stage, (b"a", b'{"id":1}'))
    stage.follow(schema="sample")
    with pytest.raises(Refused, match=message):
        stage.follow(**{"schema": "sample", **changed})
