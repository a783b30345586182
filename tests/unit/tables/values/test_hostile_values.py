"""Hostile values by each decoder in each place that decodes users' values: the process lives, takes little memory, and
answers at once, with the value or with the reason why not.

A case runs in a process of its own, which is forked from this one when all libraries are loaded. Its figures are those
of the system: the memory that the process took at most, and the time of the processor.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

pytest.importorskip("fastavro", reason="the extra moldau[schemas] is not installed")
pytest.importorskip("google.protobuf", reason="the extra moldau[schemas] is not installed")

import pyarrow as pa  # type: ignore[import-untyped]
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet  # type: ignore[import-untyped,unused-ignore]

import moldau
from moldau.broker.config.internal_topics import RecordKind
from moldau.broker.console.decoder import QUESTION_CPU_S
from moldau.broker.console.decoding.schemas import Schemas
from moldau.broker.console.decoding.selection import FetchedPiece, RecordFilter, select_records
from moldau.lake.columns import DecodedColumns, TypedColumn
from moldau.lake.forms import RegistryForm
from moldau.protocol.record_builder import Record, build_batch
from moldau.tables.values.masks import Masks, mask_rule
from moldau.tables.values.registry import SchemaSource, ValueNotDecoded
from tests.support.segments import write_checkpoints, write_partition
from tests.unit.lake.test_columns import batch
from tests.unit.tables.values.test_bounds import number

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux")]
MEMORY_MAX: Final = 64 << 20
"""Bytes that a process may take for a value of `SIZE`."""
ABOVE: Final = {
    "JSON: small objects": 96 << 20,
    "JSON: small objects without a column": 80 << 20,
    "Avro: records of five bytes": 128 << 20,
    "Protobuf: wide messages as many as are allowed": 144 << 20,
}
"""What takes more: 125,000 objects that are dicts of Python, with texts of their own in a column; and 200,000 records
and 490,000 fields in the console, whose process has 512 MB and parses the text of what it decoded.
"""
SIZE: Final = 1_000_000
"""Bytes of a large value: a batch has 1,048,588 by default."""
FIELD: Final = FieldDescriptorProto


class Hostile(NamedTuple):
    """A value, and the schema by which it is decoded; None for plain JSON."""

    schema: str
    """The name of a file of the directory of schemas."""
    payload: bytes


def repeated(element: bytes, before: bytes = b"[", after: bytes = b"]") -> bytes:
    """An array of JSON of about `SIZE` bytes."""
    return before + b",".join([element] * (SIZE // (len(element) + 1))) + after


def plain(value: int) -> bytes:
    """A varint."""
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


AVRO: Final[dict[str, Any]] = {
    "1.avsc": {"type": "record", "name": "Link", "fields": [{"name": "next", "type": ["null", "Link"]}]},
    "2.avsc": {"type": "array", "items": "null"},
    "3.avsc": {
        "type": "array",
        "items": {"type": "record", "name": "E", "fields": [{"name": name, "type": "null"} for name in "ab"]},
    },
    "4.avsc": {"type": "map", "values": {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 0}},
    "5.avsc": {"type": "array", "items": "string"},
    "6.avsc": {"type": "array", "items": {"type": "record", "name": "I", "fields": [{"name": "a", "type": "int"}]}},
}
JSON_SCHEMA: Final = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "object"}}}}
HALF: Final = 499_999

CASES: Final[dict[str, Hostile]] = {
    "JSON: arrays in arrays": Hostile("7.json", b"[" * SIZE),
    "JSON: objects in objects": Hostile("7.json", b'{"a":' * (SIZE // 5)),
    "JSON: arrays in arrays, in UTF-16": Hostile("7.json", ("[" * (SIZE // 2)).encode("utf-16")),
    "JSON: brackets in a string without an end": Hostile("7.json", b'{"a":"' + b"[" * SIZE),
    "JSON: empty arrays": Hostile("7.json", repeated(b"[]", b'{"a":[', b"]}")),
    "JSON: small objects": Hostile("7.json", repeated(b'{"b":0}', b'{"a":[', b"]}")),
    "JSON: small objects without a column": Hostile("7.json", repeated(b'{"b":0}', b'{"c":[', b"]}")),
    "JSON: many names": Hostile(
        "7.json", b"{" + b",".join(b'"%06x":%d' % (each, each) for each in range(SIZE // 16)) + b"}"
    ),
    "JSON: an integer of a million digits": Hostile("7.json", b'{"a":' + b"9" * SIZE + b"}"),
    "JSON: a fraction of a million digits": Hostile("7.json", b'{"a":0.' + b"9" * SIZE + b"}"),
    "JSON: a string of escapes": Hostile("7.json", b'{"a":"' + b"\\u00e9" * (SIZE // 6) + b'"}'),
    "JSON: NaN": Hostile("7.json", b'{"a":[NaN,-Infinity]}'),
    "JSON: no UTF-8": Hostile("7.json", b'{"a":"\xff\xfe"}' * 1000),
    "Avro: records in records": Hostile("1.avsc", b"\2" * SIZE),
    "Avro: billions of nulls": Hostile("2.avsc", number(1 << 40) + b"\0"),
    "Avro: nulls as many as are allowed": Hostile("2.avsc", number(HALF) + b"\0"),
    "Avro: records without bytes": Hostile("3.avsc", number(HALF // 10) + b"\0"),
    "Avro: blocks without end": Hostile("3.avsc", number(100) * (SIZE // 2)),
    "Avro: records of a byte": Hostile("6.avsc", number(SIZE) + b"\2" * SIZE + b"\0"),
    "Avro: records of five bytes": Hostile("6.avsc", number(SIZE // 5) + b"\xfe\xff\xff\xff\x0f" * (SIZE // 5) + b"\0"),
    "Avro: a decimal of a million bytes": Hostile("4.avsc", b"\2\2k" + number(SIZE) + b"\1" * SIZE + b"\0"),
    "Avro: a string of 2^62 bytes": Hostile("5.avsc", b"\2" + number(1 << 61) + b"a"),
    "Avro: a string of a negative size": Hostile("5.avsc", b"\2\1" + b"a"),
    "Avro: empty strings": Hostile("5.avsc", number(SIZE) + b"\0" * SIZE + b"\0"),
    "Protobuf: messages in messages": Hostile("8.desc", b"\0" + b"\x12\x7f" * (SIZE // 2)),
    "Protobuf: groups in groups": Hostile("8.desc", b"\0" + b"\x7b" * SIZE),
    "Protobuf: wide messages": Hostile("8.desc", b"\0" + b"\x0a\0" * (SIZE // 2)),
    "Protobuf: wide messages as many as are allowed": Hostile("8.desc", b"\0" + b"\x0a\0" * 4900),
    "Protobuf: numbers in a row": Hostile("8.desc", b"\0\x1a" + plain(SIZE) + b"\1" * SIZE),
    "Protobuf: a path that is none": Hostile("8.desc", b"\xfe\xff\xff\xff\x0f" * 100),
    "Protobuf: unknown fields": Hostile("8.desc", b"\0" + b"\xa0\x06\1" * (SIZE // 3)),
}


def protobuf_files() -> bytes:
    """A message with wide messages, with itself, and with numbers, as a set of files."""
    file = FileDescriptorProto(name="h.proto", syntax="proto3")
    outer, wide = file.message_type.add(name="Outer"), file.message_type.add(name="Wide")
    outer.field.add(name="rows", number=1, label=FIELD.LABEL_REPEATED, type=FIELD.TYPE_MESSAGE, type_name=".Wide")
    outer.field.add(name="own", number=2, label=FIELD.LABEL_OPTIONAL, type=FIELD.TYPE_MESSAGE, type_name=".Outer")
    outer.field.add(name="numbers", number=3, label=FIELD.LABEL_REPEATED, type=FIELD.TYPE_INT64)
    for at in range(1, 101):
        wide.field.add(name=f"f{at}", number=at, label=FIELD.LABEL_OPTIONAL, type=FIELD.TYPE_INT64)
    return bytes(FileDescriptorSet(file=[file]).SerializeToString())


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("schemas")
    for name, schema in {**AVRO, "7.json": JSON_SCHEMA}.items():
        (directory / name).write_text(json.dumps(schema))
    (directory / "8.desc").write_bytes(protobuf_files())
    return str(directory)


# The places. Each gets a value, the directory of schemas and one for its files, and gives the answer.


def by_console(value: bytes, schemas: str, directory: Path) -> str:
    wanted = RecordFilter(
        True, None, "", "any", "auto", RecordKind.PLAIN, True, Masks([mask_rule("t:value.secret")], "t")
    )
    data = build_batch([Record(value=value, timestamp=1)])
    found = select_records(
        FetchedPiece(0, data, (), 0, 1, 500, 1 << 16, False), wanted, Schemas(schemas, lambda: 0)
    ).records[0]
    return f"{found.value.form} {found.notes}"


def by_lake(value: bytes, schemas: str, directory: Path) -> str:
    rows = DecodedColumns(TypedColumn("value", RegistryForm(SchemaSource(schemas))), has_headers=False).rows(
        batch(value)
    )
    return rows.misfits[0].reason if rows.misfits else str(rows.batch.num_rows)


def by_values(value: bytes, schemas: str, directory: Path) -> str:
    return str(moldau.values(pa.array([value], pa.binary()), registry=schemas).null_count)


def by_read(value: bytes, schemas: str, directory: Path) -> str:
    return read(value, directory, registry=schemas, schema="sample")


def by_read_of_plain_json(value: bytes, schemas: str, directory: Path) -> str:
    return read(value[5:], directory, schema="sample")


def read(value: bytes, directory: Path, **arguments: Any) -> str:
    end = write_partition(directory, [build_batch([Record(value=value, timestamp=1)])])
    write_checkpoints(directory, {("t", 0): end})
    return str(moldau.read_topic(directory, "t", threads=0, **arguments).read_all()["value"].null_count)


PLACES: Final[dict[str, Callable[[bytes, str, Path], str]]] = {
    "console": by_console,
    "lake": by_lake,
    "moldau.values": by_values,
    "read, by schemas": by_read,
    "read, plain JSON": by_read_of_plain_json,
}


class Told(NamedTuple):
    """What a case came to."""

    answer: str
    cpu_s: float
    memory: int
    """Bytes that the process had at most, more than before."""


def ran(place: Callable[[bytes, str, Path], str], value: bytes, schemas: str, directory: Path) -> Told:
    """Run a case in a process of its own. Raises AssertionError if the process ends without an answer."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        signal.alarm(60)  # a process that hangs is ended by the system
        try:
            os.write(writing, json.dumps(measured(place, value, schemas, directory)).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        told = stream.read()
    _, status = os.waitpid(child, 0)
    assert status == 0, f"the process ended with {status}"
    return Told(*json.loads(told))


def measured(place: Callable[[bytes, str, Path], str], value: bytes, schemas: str, directory: Path) -> Told:
    before = memory_of("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the highest mark of the memory begins anew
    began = resource.getrusage(resource.RUSAGE_SELF)
    try:
        answer = place(value, schemas, directory)
    except (ValueNotDecoded, ValueError) as problem:
        answer = f"{type(problem).__name__}: {problem}"
    ended = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime
    return Told(answer[:300], cpu_s, memory_of("VmHWM") - before)


def memory_of(name: str) -> int:
    """A line of /proc/self/status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


@pytest.fixture(scope="module", autouse=True)
def loaded(schemas: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Have all libraries loaded before the first process is forked."""
    for name, place in PLACES.items():
        for each in ("JSON: NaN", "Avro: nulls as many as are allowed", "Protobuf: unknown fields"):
            measured(place, framed(CASES[each]), schemas, tmp_path_factory.mktemp(name.replace(" ", "-")))


def framed(case: Hostile) -> bytes:
    return struct.pack(">bi", 0, int(case.schema.partition(".")[0])) + case.payload


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("case", CASES)
def test_a_hostile_value_costs_little(case: str, place: str, schemas: str, tmp_path: Path) -> None:
    if "plain JSON" in place and not case.startswith("JSON"):
        pytest.skip("no JSON")
    told = ran(PLACES[place], framed(CASES[case]), schemas, tmp_path)
    assert told.answer
    assert told.memory <= ABOVE.get(case, MEMORY_MAX), told
    assert told.cpu_s <= QUESTION_CPU_S, told
