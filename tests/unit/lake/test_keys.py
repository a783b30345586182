"""The identity of keys, and the files that are looked at for them."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyiceberg", reason="the extra moldau[iceberg] is not installed")

import pyarrow as pa  # type: ignore[import-untyped]
from hypothesis import given, settings
from hypothesis import strategies as st

import moldau
from moldau.lake.keys import key_identities
from moldau.protocol.record_builder import Record
from tests.support.lake_stage import START_MS, LakeStage, framed

KEY = pa.struct([("a", pa.string()), ("n", pa.int64()), ("inside", pa.struct([("b", pa.string())]))])
TEXTS = st.none() | st.text("a1:-", max_size=3)
KEYS = st.fixed_dictionaries(
    {"a": TEXTS, "n": st.none() | st.integers(-12, 12), "inside": st.fixed_dictionaries({"b": TEXTS})}
)


@given(st.lists(KEYS, min_size=2, max_size=8))
@settings(deadline=None)
def test_keys_of_several_fields_are_one_only_if_each_field_is(keys: list[dict[str, object]]) -> None:
    found = key_identities(pa.table({"key": pa.array(keys, KEY)})).to_pylist()
    for one, of_one in zip(keys, found, strict=True):
        assert [each == one for each in keys] == [each == of_one for each in found]


@pytest.mark.parametrize("kind", [pa.binary(), pa.string(), pa.large_string()])
def test_a_key_of_bytes_or_text_is_its_bytes(kind: pa.DataType) -> None:
    assert key_identities(pa.table({"key": pa.array(["a", "", "é"], kind)})).to_pylist() == [b"a", b"", "é".encode()]


@pytest.mark.parametrize("key_type", ["int", "string"])
def test_the_bounds_of_a_file_leave_out_no_file_with_a_changed_key(tmp_path: Path, key_type: str) -> None:
    stage = LakeStage(tmp_path)

    def key(number: int) -> bytes:
        return number.to_bytes(4, "big", signed=True) if key_type == "int" else b"%03d" % (number + 100)

    def follow(numbers: range, value: bytes) -> None:
        stage.append([Record(key(each), value, START_MS) for each in numbers])
        stage.follow(mode="upsert", key_type=key_type)

    follow(range(5, 10), b"1")
    follow(range(-4, 6), b"2")  # 5 is the greatest of these, and the least of that file.
    follow(range(9, 12), b"3")
    values = [row["value"] for row in sorted(stage.rows(), key=lambda row: row["key"])]
    assert values == [b"2"] * 10 + [b"1"] * 3 + [b"3"] * 3
    assert stage.verified().findings == []


def key_of(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "K", "fields": [{"name": name, "type": kind} for name, kind in fields]}


OPTIONAL = ["null", "string"]
VALUE = {"type": "record", "name": "V", "fields": [{"name": "n", "type": "int"}]}


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("between", ["nothing", "a commit", "a restart"])
@pytest.mark.parametrize(
    ("before", "key", "after", "later"),
    [
        (key_of(("id", "int")), {"id": 7}, key_of(("id", "int"), ("of", OPTIONAL)), {"id": 7, "of": None}),
        (key_of(("id", "int")), {"id": 7}, key_of(("id", "long")), {"id": 7}),
        (key_of(("id", "float")), {"id": 0.1}, key_of(("id", "double")), {"id": 0.10000000149011612}),
    ],
)
def test_a_key_is_the_same_key_after_its_schema_has_grown(
    tmp_path: Path, before: Any, key: Any, after: Any, later: Any, between: str, *, flat: bool
) -> None:
    stage = LakeStage(tmp_path)
    for number, schema in enumerate((before, after, VALUE), 1):
        stage.put_schema(number, schema)
    chosen = {"mode": "upsert", "registry": str(stage.schemas), "key_type": "registry", "is_flat": flat}

    def put(key: bytes, number: int) -> None:
        stage.append([Record(key, framed(3, VALUE, {"n": number}), START_MS)])

    put(framed(1, before, key), 1)
    follower = None if between == "nothing" else stage.follow(**chosen)
    put(framed(2, after, later), 2)
    if follower is not None:
        live = moldau.table(stage.warehouse, "t", live=str(stage.logs), registry=str(stage.schemas))
        assert live.to_table()["offset"].to_pylist() == [1]
    if follower is not None and between == "a commit":
        follower.catch_up()
    else:
        stage.follow(**chosen)
    assert stage.offsets() == [(0, 1)]
    assert stage.verified().findings == []


@pytest.mark.parametrize("flat", [False, True])
def test_a_decimal_is_the_same_key_in_each_form_of_its_bytes(tmp_path: Path, *, flat: bool) -> None:
    # -1.28 is 80 of Java and ff80 of fastavro: findings/avro_decimals_of_two_forms.sh
    stage = LakeStage(tmp_path)
    schema = key_of(("id", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}))
    for number, each in enumerate((schema, VALUE), 1):
        stage.put_schema(number, each)
    of_fastavro = framed(1, schema, {"id": Decimal("-1.28")})
    of_java = of_fastavro[:5] + b"\x02\x80"
    assert of_fastavro[5:] == b"\x04\xff\x80"
    for number, key in enumerate((of_java, of_fastavro)):
        stage.append([Record(key, framed(2, VALUE, {"n": number}), START_MS)])
    follower = stage.follow(mode="upsert", registry=str(stage.schemas), key_type="registry", is_flat=flat)
    assert stage.offsets() == [(0, 1)]
    stage.append([Record(of_java, framed(2, VALUE, {"n": 2}), START_MS)])
    follower.catch_up()
    assert stage.offsets() == [(0, 2)]
    assert stage.verified().findings == []


@pytest.mark.parametrize("flat", [False, True])
def test_a_new_field_of_all_keys_of_a_round_makes_other_keys(tmp_path: Path, *, flat: bool) -> None:
    stage = LakeStage(tmp_path)
    schemas = [key_of(("id", "int")), key_of(("id", "int"), ("of", OPTIONAL)), VALUE]
    for number, schema in enumerate(schemas, 1):
        stage.put_schema(number, schema)
    chosen = {"mode": "upsert", "registry": str(stage.schemas), "key_type": "registry", "is_flat": flat}
    value = framed(3, VALUE, {"n": 1})
    stage.append([Record(framed(1, schemas[0], {"id": 7}), value, START_MS)])
    follower = stage.follow(**chosen)
    stage.append([Record(framed(2, schemas[1], {"id": 7, "of": each}), value, START_MS) for each in "ab"])
    follower.catch_up()
    assert stage.offsets() == [(0, 0), (0, 1), (0, 2)]
    assert stage.verified().findings == []
