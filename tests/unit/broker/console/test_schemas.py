"""Records that a schema registry has framed are shown, searched and masked as JSON."""

from __future__ import annotations

import io
import json
import struct
import threading
from base64 import b64encode
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from uuid import UUID

import pytest

from moldau.broker.config.internal_topics import RecordKind
from moldau.broker.console.decoding.schemas import PAUSE_MS, Schemas
from moldau.broker.console.decoding.selection import FetchedPiece, RecordFilter, ShownRecord, select_records
from moldau.protocol.record_builder import Record, build_batch
from moldau.tables.values.masks import Masks, mask_rule
from tests.support.header_frames import AVRO, WRITTEN, put_schemas
from tests.support.protobuf_messages import FRAMED, ID, NO_MESSAGE, frame, put_schema

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "town", "type": "string"}, {"name": "card", "type": "string"}],
}


def framed(schema_id: int, value: object) -> bytes:
    fastavro = pytest.importorskip("fastavro")
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(ORDER), value)
    return struct.pack(">bi", 0, schema_id) + out.getvalue()


@pytest.fixture
def schemas(tmp_path: Path) -> Schemas:
    (tmp_path / "7.avsc").write_text(json.dumps(ORDER))
    return Schemas(str(tmp_path), lambda: 0)


def selected(
    schemas: Schemas,
    values: list[bytes | None],
    rules: tuple[str, ...] = (),
    find: str = "",
    form: str = "auto",
) -> list[ShownRecord]:
    batch = build_batch([Record(key=b"k", value=value, timestamp=1) for value in values])
    wanted = RecordFilter(
        True, None, find, "value", form, RecordKind.PLAIN, True, Masks(map(mask_rule, rules), "orders")
    )
    return select_records(FetchedPiece(0, batch, (), 0, len(values), 50, 1 << 20, False), wanted, schemas).records


def test_avro_is_shown_as_json_and_other_bytes_as_they_are(schemas: Schemas) -> None:
    value = framed(7, {"id": 1, "town": "Žižkov", "card": "4111"})
    shown, plain, null = selected(schemas, [value, b"plain", None])
    assert json.loads(shown.value.text or "") == {"id": 1, "town": "Žižkov", "card": "4111"}
    assert (shown.value.form, shown.notes) == ("json", "value: schema 7")
    assert (plain.value.text, plain.notes, null.value.text) == ("plain", "", None)


def test_a_search_looks_at_what_is_decoded_and_not_at_what_is_masked(schemas: Schemas) -> None:
    values: list[bytes | None] = [framed(7, {"id": at, "town": "Žižkov", "card": "4111"}) for at in range(3)]
    rules = ("orders:value.card",)
    assert len(selected(schemas, values, rules, ".*Žižkov.*")) == 3
    assert selected(schemas, values, rules, "(?s).*4111.*") == []
    assert "4111" not in (selected(schemas, values, rules)[0].value.text or "")


def test_what_cannot_be_decoded_is_shown_as_bytes_with_a_note_and_masked_as_a_whole(schemas: Schemas) -> None:
    unknown = framed(8, {"id": 1, "town": "x", "card": "4111"})
    cut = framed(7, {"id": 1, "town": "x", "card": "4111"})[:-2]
    first, second = selected(schemas, [unknown, cut])
    assert first.value.form == second.value.form == "hex"
    assert "schema 8 is not in" in first.notes and "schema 7 does not fit" in second.notes
    assert [each.value.text for each in selected(schemas, [unknown, cut], ("*:value.card",))] == ["***", "***"]


def test_a_registry_that_has_no_schema_is_asked_again_only_after_a_while() -> None:
    asked: list[str] = []

    class Registry(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Registry)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    now_ms = 0
    schemas = Schemas(f"http://anna:secret@127.0.0.1:{server.server_port}", lambda: now_ms)
    value = struct.pack(">bi", 0, 9) + b"payload"
    try:
        for _ in range(3):
            _, note = schemas.readable(Record(value=value))
            assert "answers 404" in note and "secret" not in note
        assert asked == ["/schemas/ids/9"]
        now_ms = PAUSE_MS
        schemas.readable(Record(value=value))
        assert len(asked) == 2
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_header_chooses_the_schema_of_a_key_and_of_a_value(tmp_path: Path) -> None:
    pytest.importorskip("fastavro")
    pytest.importorskip("google.protobuf")
    schemas = Schemas(put_schemas(tmp_path), lambda: 0)
    for name, written in WRITTEN.items():
        for column, other in (("key", "value"), ("value", "key")):
            key, value = (written.data, b"plain") if column == "key" else (b"plain", written.data)
            headers = ((f"__{column}_schema_id", written.header), (f"__{other}_schema_id", None))
            shown, notes = schemas.readable(Record(key, value, headers=headers))
            assert notes == f"{column}: schema {UUID(bytes=written.header[1:17])}", name
            found = json.loads(getattr(shown, column))
            expected = written.value
            assert found == (b64encode(expected).decode() if isinstance(expected, bytes) else expected)
            assert getattr(shown, other) == b"plain"


@pytest.mark.parametrize(
    ("header", "note"),
    [
        (b"\2", "the header of the schema's id has neither an id nor a GUID: it has 02"),
        (AVRO.header + b"\0", "the header has 1 bytes after the schema, which is of AVRO"),
        (b"\1" + b"\xff" * 16, "schema ffffffff-ffff-ffff-ffff-ffffffffffff is not in"),
    ],
)
def test_a_header_that_names_no_schema_is_a_note_and_masks_hide_the_value(
    tmp_path: Path, header: bytes, note: str
) -> None:
    schemas = Schemas(put_schemas(tmp_path), lambda: 0)
    record = Record(value=AVRO.data, headers=(("__value_schema_id", header),), timestamp=1)
    for rules, text in (((), AVRO.data.decode()), (("orders:value.customer",), "***")):
        wanted = RecordFilter(
            True, None, "", "value", "text", RecordKind.PLAIN, True, Masks(map(mask_rule, rules), "orders")
        )
        (shown,) = select_records(
            FetchedPiece(0, build_batch([record]), (), 0, 1, 50, 1 << 20, False), wanted, schemas
        ).records
        assert note in shown.notes and (shown.value.text or "").replace("\\x06", "\x06") == text


@pytest.mark.parametrize("name", FRAMED)
def test_the_frame_chooses_the_message_that_is_shown(tmp_path: Path, name: str) -> None:
    put_schema(tmp_path)
    value, expected = FRAMED[name]
    (shown,) = selected(Schemas(str(tmp_path), lambda: 0), [frame(value)])
    assert json.loads(shown.value.text or "") == expected
    assert (shown.value.form, shown.notes) == ("json", f"value: schema {ID}")


@pytest.mark.parametrize("path", NO_MESSAGE)
def test_a_frame_that_names_no_message_is_shown_as_bytes_with_a_note(tmp_path: Path, path: bytes) -> None:
    put_schema(tmp_path)
    (shown,) = selected(Schemas(str(tmp_path), lambda: 0), [frame(path)])
    assert shown.value.form != "json" and "the schema has no message at [" in shown.notes
