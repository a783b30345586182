"""Records of JSON lines have the bytes of the fields that were named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from moldau.broker.cli.daily.records.sources import RecordShape, records_of
from moldau.tables.client.producer import OutgoingRecord


def records(directory: Path, lines: bytes, **fields: Any) -> list[OutgoingRecord]:
    file = directory / "lines.jsonl"
    file.write_bytes(lines)
    nothing: dict[str, Any] = dict.fromkeys(RecordShape.__annotations__)
    shape = RecordShape(**{**nothing, "topic": "t", "headers": (), "has_tombstones": False, **fields})
    invocation: Any = None
    return list(records_of(str(file), "jsonl", shape, invocation, lambda: None))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ('{"amount":1.234567890123456789,"rest":[1.10,1E+400,-0.0,7,"1.10"]}', True),
        ("1.10", True),
        ('"1.10"', False),
        ('"text"', False),
        ("true", True),
    ],
)
def test_numbers_of_a_field_keep_their_digits(tmp_path: Path, field: str, value: bool) -> None:
    line = f'{{"id": 12345678901234567.89, "of": {field}, "nothing": null}}\n'.encode()
    (found,) = records(tmp_path, line, key_field="id", value_field="of")
    assert found.key == b"12345678901234567.89"
    assert found.value == (field if value else field.strip('"')).encode()
    assert records(tmp_path, line, value_field="nothing")[0].value is None
    assert records(tmp_path, line)[0].value == line.rstrip()
