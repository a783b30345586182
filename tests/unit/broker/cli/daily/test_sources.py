"""Records of JSON lines have the bytes of the fields that were named; a row of CSV loses nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from moldau.broker.cli.daily.failures import Failure
from moldau.broker.cli.daily.records.sources import RecordShape, records_of
from moldau.tables.client.producer import OutgoingRecord


def records(directory: Path, lines: bytes, kind: str = "jsonl", **fields: Any) -> list[OutgoingRecord]:
    file = directory / f"lines.{kind}"
    file.write_bytes(lines)
    return list(lines_of(file, kind, **fields))


def lines_of(file: Path, kind: str, **fields: Any) -> Iterator[OutgoingRecord]:
    nothing: dict[str, Any] = dict.fromkeys(RecordShape.__annotations__)
    shape = RecordShape(**{**nothing, "topic": "t", "headers": (), "has_tombstones": False, **fields})
    invocation: Any = None
    return records_of(str(file), kind, shape, invocation, lambda: None)


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


def test_a_byte_order_mark_is_no_part_of_a_record(tmp_path: Path) -> None:
    for kind, lines in (("jsonl", b'{"a":"1"}\n'), ("csv", b"a\r\n1\r\n")):
        assert [each.value for each in records(tmp_path, b"\xef\xbb\xbf" + lines, kind)] == [b'{"a":"1"}']


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (b"a,b,a\n1,2,3\n", ": two columns have one name; the columns are a, b, a"),
        (b'a,b\n1,"x\ny"\n2,\xfcber\n', ", line 4: it is not UTF-8"),
        (b"a,b\n" + b"1,2\n" * 9_000 + b"2,\xfcber\n", ", line 9002: it is not UTF-8"),
        (b'a,b\n1,"not closed\n2,3\n', ", line 3: unexpected end of data"),
    ],
)
def test_csv_that_would_lose_something_is_refused(lines: bytes, told: str, tmp_path: Path) -> None:
    with pytest.raises(Failure) as failed:
        records(tmp_path, lines, "csv")
    assert str(failed.value) == f"{tmp_path}/lines.csv{told}"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b'{"value_base64":5}', "value_base64 is a text"),
        (b'{"value":"x","headers":5}', "the headers are a list"),
        (b'{"value":"x","headers":[5]}', "a header has a name and a value"),
        (b'{"value":"x","headers":[{"name":"n","value_base64":[]}]}', "value_base64 is a text"),
    ],
)
def test_a_record_of_another_form_is_refused(line: bytes, told: str, tmp_path: Path) -> None:
    with pytest.raises(Failure, match=f"line 1: {told}"):
        records(tmp_path, line, "records")


def test_a_line_of_a_named_pipe_is_not_held_back(tmp_path: Path) -> None:
    is_read = Event()

    def write() -> None:
        with open(pipe, "wb", buffering=0) as stream:
            stream.write(b"one\n")
            is_read.wait(5)

    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = Thread(target=write)
    writer.start()
    found = lines_of(pipe, "lines")
    assert next(found).value == b"one" and writer.is_alive()
    is_read.set()
    assert [each.value for each in found] == []
    writer.join()


def test_a_cell_of_csv_may_be_as_long_as_a_record(tmp_path: Path) -> None:
    (found,) = records(tmp_path, b"a\n" + b"x" * 900_000 + b"\n", "csv", value_field="a")
    assert found.value == b"x" * 900_000
