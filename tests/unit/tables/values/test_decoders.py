"""Framed values, decoded by schemas of a directory and of a registry that is asked over HTTP."""

from __future__ import annotations

import base64
import io
import json
import struct
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, time
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from moldau.tables.values import registry as registry_module
from moldau.tables.values.column_decoding import PLACE, ColumnDecoding
from moldau.tables.values.decoders import FramedValues, as_text
from moldau.tables.values.registry import RegistryNotReached, SchemaSource, ValueNotDecoded, message_path, unframed

ADDRESS = {"type": "record", "name": "Address", "fields": [{"name": "town", "type": "string"}]}
PERSON = {
    "type": "record",
    "name": "Person",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "address", "type": ["null", "Address"]},
    ],
}
WHOLE = {**PERSON, "fields": [*PERSON["fields"][:2], {"name": "address", "type": ["null", ADDRESS]}]}
AT = datetime(2026, 1, 2, tzinfo=UTC)
SOMEBODY = {"id": 7, "at": AT, "address": {"town": "Brno"}}


def framed(schema_id: int, payload: bytes) -> bytes:
    return struct.pack(">bi", 0, schema_id) + payload


def avro(schema: object, value: object) -> bytes:
    fastavro = pytest.importorskip("fastavro")
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def test_frames_that_are_none_are_refused() -> None:
    for value in (b"", b"\0\0\0", b'{"a": 1}', b"\1\0\0\0\7x"):
        with pytest.raises(ValueNotDecoded, match="not framed"):
            unframed(value)
    assert unframed(framed(7, b"x"))[0] == 7
    assert message_path(memoryview(b"\0rest"))[0] == [0]
    assert message_path(memoryview(b"\4\2\0rest")) == ([1, 0], memoryview(b"rest"))
    for payload in (b"", b"\4\2", b"\xff" * 6):
        with pytest.raises(ValueNotDecoded):
            message_path(memoryview(payload))


def test_json_and_avro_of_a_directory(tmp_path: Path) -> None:
    (tmp_path / "1.json").write_text("{}")
    (tmp_path / "2.avsc").write_text(json.dumps(WHOLE))
    values = FramedValues(SchemaSource(str(tmp_path)))
    assert values.decode(framed(1, b'{"a": [1]}')) == {"a": [1]}
    payload = avro(WHOLE, SOMEBODY)
    found = values.decode(framed(2, payload))
    assert found == SOMEBODY
    assert json.loads(as_text(found)) == {"id": 7, "at": "2026-01-02T00:00:00+00:00", "address": {"town": "Brno"}}
    for value, said in (
        (framed(3, b""), "schema 3 is not in"),
        (framed(1, b"{"), "does not fit schema 1"),
        (framed(2, payload[:-1]), "does not fit schema 2"),
        (framed(2, payload + b"x"), "1 bytes are left over"),
    ):
        with pytest.raises(ValueNotDecoded, match=said):
            values.decode(value)


def test_protobuf_of_a_directory(tmp_path: Path) -> None:
    descriptor_pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")
    file = person_file(descriptor_pb2)
    (tmp_path / "5.desc").write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    values = FramedValues(SchemaSource(str(tmp_path)))
    # field 1: 7; field 2: "a", "b"; of the second message type of the file
    assert values.decode(framed(5, b"\2\2" + b"\x08\x07\x12\x01a\x12\x01b")) == {
        "id": 7,
        "names": ["a", "b"],
        "note": None,
    }
    assert values.decode(framed(5, b"\0")) == {}
    with pytest.raises(ValueNotDecoded, match="does not fit schema 5"):
        values.decode(framed(5, b"\2\2\x08"))


def person_file(descriptor_pb2: object) -> object:
    """message Empty {} message Person { int64 id = 1; repeated string names = 2; optional string note = 3; }"""
    file = descriptor_pb2.FileDescriptorProto(name="person.proto", syntax="proto3")  # type: ignore[attr-defined]
    file.message_type.add(name="Empty")
    person = file.message_type.add(name="Person")
    person.field.add(name="id", number=1, type=3, label=1)
    person.field.add(name="names", number=2, type=9, label=3)
    person.oneof_decl.add(name="_note")
    person.field.add(name="note", number=3, type=9, label=1, proto3_optional=True, oneof_index=0)
    return file


class Answers(BaseHTTPRequestHandler):
    """A registry with a schema that refers to another, and one for Protobuf."""

    known: ClassVar[dict[str, object]] = {}
    unknown: ClassVar[object] = {"error_code": 40403}
    asked: ClassVar[list[tuple[str, str | None]]] = []
    moved: ClassVar[str] = ""
    """Where every request is redirected to; nowhere if empty."""

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers["Authorization"]))
        if self.moved:
            self.send_response(302)
            self.send_header("Location", self.moved)
            self.end_headers()
            return
        answer = self.known.get(self.path)
        self.send_response(200 if answer else 404)
        self.end_headers()
        self.wfile.write(json.dumps(answer or self.unknown).encode())

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the test reads `asked`."""


@pytest.fixture
def registry() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    Answers.known, Answers.asked = {}, []
    yield f"http://user:word@127.0.0.1:{server.server_port}/api/"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_registry_gives_schemas_and_those_they_refer_to(registry: str) -> None:
    reference = {"name": "Address", "subject": "a/b", "version": 3}
    Answers.known = {
        "/api/schemas/ids/2": {"schema": json.dumps(PERSON), "references": [reference]},
        "/api/subjects/a%2Fb/versions/3": {"schema": json.dumps(ADDRESS)},
    }
    values = FramedValues(SchemaSource(registry))
    value = framed(2, avro(WHOLE, SOMEBODY))
    assert values.decode(value) == values.decode(value) == SOMEBODY
    login = "Basic " + base64.b64encode(b"user:word").decode()
    assert Answers.asked == [("/api/schemas/ids/2", login), ("/api/subjects/a%2Fb/versions/3", login)]
    with pytest.raises(ValueNotDecoded, match="answers 404 to /schemas/ids/9") as problem:
        values.decode(framed(9, b""))
    assert "word" not in str(problem.value)


def test_a_redirection_is_not_followed_and_takes_no_password_with_it(registry: str) -> None:
    elsewhere = registry.replace("user:word@", "").replace("127.0.0.1", "localhost")
    Answers.known = {"/api/schemas/ids/2": {"schema": "{}"}}
    Answers.moved = f"{elsewhere}schemas/ids/2"
    try:
        with pytest.raises(RegistryNotReached, match="redirects to http://localhost, which is not followed"):
            SchemaSource(registry).schema(2)
    finally:
        Answers.moved = ""
    assert len(Answers.asked) == 1


def test_an_answer_without_end_is_cut_off(registry: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "ANSWER_SIZE_MAX", 1_000)
    Answers.known = {"/api/schemas/ids/2": {"schema": "x" * 2_000}}
    with pytest.raises(RegistryNotReached, match="more than 1000 bytes"):
        SchemaSource(registry).schema(2)


def test_a_404_of_another_server_does_not_say_that_there_is_no_schema(
    registry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for answer in ({"detail": "Not Found"}, "not found", ["error_code"]):
        monkeypatch.setattr(Answers, "unknown", answer)
        with pytest.raises(RegistryNotReached, match="answers 404 to /schemas/ids/9"):
            FramedValues(SchemaSource(registry)).decode(framed(9, b""))


def test_a_directory_that_cannot_be_read_does_not_say_that_there_is_no_schema(tmp_path: Path) -> None:
    with pytest.raises(RegistryNotReached, match="gone is not a directory"):
        FramedValues(SchemaSource(f"file://{tmp_path}/gone")).decode(framed(9, b""))
    (tmp_path / "9.avsc").mkdir()
    with pytest.raises(RegistryNotReached, match="Is a directory"):
        FramedValues(SchemaSource(str(tmp_path))).decode(framed(9, b""))


def test_where_values_may_be_null_a_registry_that_does_not_answer_is_an_error(tmp_path: Path) -> None:
    lenient = ColumnDecoding(SchemaSource(str(tmp_path / "gone")), pa.string(), True, ())
    with pytest.raises(RegistryNotReached):
        lenient.decode_column(pa.array([framed(1, b"{}")], pa.binary()))


def test_each_kind_of_value_has_a_form_in_json() -> None:
    value = {"at": AT, "day": AT.date(), "clock": time(12, 30), "bytes": b"\xff", "amount": Decimal("1.50")}
    assert json.loads(as_text(value)) == {
        "at": "2026-01-02T00:00:00+00:00",
        "day": "2026-01-02",
        "clock": "12:30:00",
        "bytes": "/w==",
        "amount": "1.50",
    }


def test_a_registry_gives_protobuf_without_a_compiler(registry: str) -> None:
    descriptor_pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")
    text = base64.b64encode(person_file(descriptor_pb2).SerializeToString()).decode()  # type: ignore[attr-defined]
    Answers.known = {
        "/api/schemas/ids/5": {"schema": "message …", "schemaType": "PROTOBUF"},
        "/api/schemas/ids/5?format=serialized": {"schema": text, "schemaType": "PROTOBUF"},
    }
    assert FramedValues(SchemaSource(registry)).decode(framed(5, b"\2\2\x08\x07")) == {
        "id": 7,
        "names": [],
        "note": None,
    }


def test_a_value_that_does_not_fit_is_named(tmp_path: Path) -> None:
    (tmp_path / "1.json").write_text("{}")
    source, columns = SchemaSource(str(tmp_path)), pa.struct([("a", pa.int64()), ("b", pa.string())])
    values = pa.array([framed(1, b'{"a": 1}'), None, framed(1, b'{"a": %d}' % (1 << 70)), b"bare"], pa.binary())
    places = (pa.array(["t"] * 4), pa.array([0] * 4), pa.array([10, 11, 12, 13]))
    strict = ColumnDecoding(source, columns, False, PLACE)
    assert strict.decode_column(values[:2], *(each[:2] for each in places)).to_pylist() == [{"a": 1, "b": None}, None]
    with pytest.raises(ValueNotDecoded, match="topic t, partition 0, offset 13: the value is not framed"):
        strict.decode_column(values, *places)
    with pytest.raises(ValueNotDecoded, match="topic t, partition 0, offset 12: the value does not fit the columns"):
        strict.decode_column(values[:3], *(each[:3] for each in places))
    lenient = ColumnDecoding(source, columns, True, ())
    assert lenient.decode_column(values).to_pylist() == [{"a": 1, "b": None}, None, None, None]
