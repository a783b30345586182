"""The identity of keys, and the files that are looked at for them."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyiceberg", reason="the extra moldau[iceberg] is not installed")

import pyarrow as pa  # type: ignore[import-untyped]
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.lake.keys import identities
from moldau.protocol.record_builder import Record
from tests.support.lake_stage import START_MS, LakeStage

KEY = pa.struct([("a", pa.string()), ("n", pa.int64()), ("inside", pa.struct([("b", pa.string())]))])
TEXTS = st.none() | st.text("a1:-", max_size=3)
KEYS = st.fixed_dictionaries(
    {"a": TEXTS, "n": st.none() | st.integers(-12, 12), "inside": st.fixed_dictionaries({"b": TEXTS})}
)


@given(st.lists(KEYS, min_size=2, max_size=8))
@settings(deadline=None)
def test_keys_of_several_fields_are_one_only_if_each_field_is(keys: list[dict[str, object]]) -> None:
    found = identities(pa.table({"key": pa.array(keys, KEY)})).to_pylist()
    for one, of_one in zip(keys, found, strict=True):
        assert [each == one for each in keys] == [each == of_one for each in found]


@pytest.mark.parametrize("kind", [pa.binary(), pa.string(), pa.large_string()])
def test_a_key_of_bytes_or_text_is_its_bytes(kind: pa.DataType) -> None:
    assert identities(pa.table({"key": pa.array(["a", "", "é"], kind)})).to_pylist() == [b"a", b"", "é".encode()]


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
