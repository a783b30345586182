"""A schema registry that is asked over HTTP: what it is asked, what it answers, and what is said if it does not."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar
from uuid import UUID

import pytest

from moldau.tables.refusals import Refused
from moldau.tables.values import registry as registry_module
from moldau.tables.values.decoders import FramedValueDecoder
from moldau.tables.values.frames import HeaderFramed
from moldau.tables.values.registry import RegistryAddress, RegistryNotReached, SchemaSource, ValueNotDecoded
from tests.support.header_frames import AVRO, GUID, ORDER, SHOP, WRITTEN
from tests.unit.tables.values.test_decoders import ADDRESS, PERSON, SOMEBODY, WHOLE, avro, framed, person_file


class Answers(BaseHTTPRequestHandler):
    """A registry with a schema that refers to another, and one for Protobuf."""

    known: ClassVar[dict[str, object]] = {}
    unknown: ClassVar[object] = {"error_code": 40403}
    asked: ClassVar[list[tuple[str, str | None]]] = []
    codes: ClassVar[list[int]] = []
    """The answers before those that are known, the last one first."""
    bare: ClassVar[bytes] = b""
    """Every answer, if it is given."""
    moved: ClassVar[str] = ""
    """Where every request is redirected to; nowhere if empty."""

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers["Authorization"]))
        if self.codes:
            self.send_error(self.codes.pop())
            return
        if self.moved:
            self.send_response(302)
            self.send_header("Location", self.moved)
            self.end_headers()
            return
        answer = self.known.get(self.path)
        self.send_response(200 if answer else 404)
        self.end_headers()
        self.wfile.write(self.bare or json.dumps(answer or self.unknown).encode())

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
        "/api/subjects/a%2Fb/versions/3?deleted=true": {"schema": json.dumps(ADDRESS)},
    }
    values = FramedValueDecoder(SchemaSource(registry))
    value = framed(2, avro(WHOLE, SOMEBODY))
    assert values.decode(value) == values.decode(value) == SOMEBODY
    login = "Basic " + base64.b64encode(b"user:word").decode()
    assert Answers.asked == [("/api/schemas/ids/2", login), ("/api/subjects/a%2Fb/versions/3?deleted=true", login)]
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
            FramedValueDecoder(SchemaSource(registry)).decode(framed(9, b""))


def test_a_registry_gives_protobuf_without_a_compiler(registry: str) -> None:
    descriptor_pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")
    text = base64.b64encode(person_file(descriptor_pb2).SerializeToString()).decode()  # type: ignore[attr-defined]
    Answers.known = {
        "/api/schemas/ids/5": {"schema": "message …", "schemaType": "PROTOBUF"},
        "/api/schemas/ids/5?format=serialized": {"schema": text, "schemaType": "PROTOBUF"},
    }
    assert FramedValueDecoder(SchemaSource(registry)).decode(framed(5, b"\2\2\x08\x07")) == {
        "id": 7,
        "names": [],
        "note": None,
    }


def test_protobuf_of_a_registry_with_well_known_files_and_references(registry: str) -> None:
    """The registry names the reference, not the well-known file, and calls each file `default`."""
    descriptor_pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")
    town = descriptor_pb2.FileDescriptorProto(name="default", package="p", syntax="proto3")
    town.message_type.add(name="Town").field.add(name="name", number=1, type=9, label=1)
    whole = descriptor_pb2.FileDescriptorProto(name="default", package="p", syntax="proto3")
    whole.dependency.extend(["town.proto", "google/protobuf/timestamp.proto"])
    message = whole.message_type.add(name="Visit")
    message.field.add(name="town", number=1, label=1, type_name="Town")
    message.field.add(name="at", number=2, label=1, type_name="google.protobuf.Timestamp")
    reference = {"name": "town.proto", "subject": "towns", "version": 1}
    texts = [base64.b64encode(each.SerializeToString()).decode() for each in (whole, town)]
    answer = {"schema": texts[0], "schemaType": "PROTOBUF", "references": [reference]}
    Answers.known = {
        "/api/schemas/ids/5": {**answer, "schema": "message …"},
        "/api/schemas/ids/5?format=serialized": answer,
        "/api/subjects/towns/versions/1?deleted=true&format=serialized": {"schema": texts[1], "schemaType": "PROTOBUF"},
    }
    assert FramedValueDecoder(SchemaSource(registry)).decode(
        framed(5, b"\0" + b"\x0a\x03\x0a\x01B\x12\x02\x08\x05")
    ) == {
        "town": {"name": "B"},
        "at": {"seconds": 5, "nanos": 0},
    }


def test_a_registry_is_asked_by_the_guids_of_headers(registry: str) -> None:
    """The paths are those that confluent-kafka 2.16.1 requests."""
    pytest.importorskip("google.protobuf.descriptor_pb2")
    order, shop = f"/api/schemas/guids/{GUID}1", f"/api/schemas/guids/{GUID}5"
    Answers.known = {
        order: {"schema": json.dumps(ORDER), "guid": f"{GUID}1"},
        shop: {"schema": "message …", "schemaType": "PROTOBUF"},
        f"{shop}?format=serialized": {"schema": base64.b64encode(SHOP).decode(), "schemaType": "PROTOBUF"},
    }
    values = FramedValueDecoder(SchemaSource(registry))
    for written in (AVRO, AVRO, WRITTEN["Protobuf, nested message"]):
        assert values.decode(HeaderFramed(written.data, written.header)) == written.value
    assert [path for path, _ in Answers.asked] == [order, shop, f"{shop}?format=serialized"]
    with pytest.raises(ValueNotDecoded, match=f"answers 404 to /schemas/guids/{GUID}9$"):
        values.decode(HeaderFramed(b"", b"\1" + UUID(f"{GUID}9").bytes))


def test_a_registry_without_guids_does_not_say_that_there_is_no_schema(
    registry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Answers, "unknown", {"error_code": 404, "message": "HTTP 404 Not Found"})
    with pytest.raises(RegistryNotReached, match="it does not know schemas by their GUID"):
        FramedValueDecoder(SchemaSource(registry)).decode(HeaderFramed(AVRO.data, AVRO.header))
    with pytest.raises(ValueNotDecoded, match=r"answers 404 to /schemas/ids/9$"):
        FramedValueDecoder(SchemaSource(registry)).decode(framed(9, b""))


def test_a_registry_that_gives_protobuf_as_text_is_named_with_the_remedy(registry: str) -> None:
    text = {"schema": 'syntax = "proto3"; message A {}', "schemaType": "PROTOBUF"}
    Answers.known = {"/api/schemas/ids/5": text, "/api/schemas/ids/5?format=serialized": text}
    with pytest.raises(ValueNotDecoded, match=r"as text only .*: name a directory with 5\.desc"):
        SchemaSource(registry).schema(5)


@pytest.mark.parametrize("references", [[1], [{"name": "a"}], "none", [{"name": "a", "subject": "s", "version": "x"}]])
def test_references_that_are_none(registry: str, references: object) -> None:
    Answers.known = {"/api/schemas/ids/5": {"schema": "{}", "references": references}}
    with pytest.raises(ValueNotDecoded, match="gives references that are none"):
        SchemaSource(registry).schema(5)


def test_user_and_password_are_percent_encoded_in_the_url(registry: str) -> None:
    Answers.known = {"/api/schemas/ids/2": {"schema": "{}"}}
    place = registry.replace("user:word@", "us%40er:p%3Aa%2Fs%C5%BE@")
    assert SchemaSource(place).schema(2).text == b"{}"
    assert Answers.asked[0][1] == "Basic " + base64.b64encode("us@er:p:a/sž".encode()).decode()


@pytest.mark.parametrize(
    "place",
    [
        "http://",
        "http:registry",
        "http://user:s3cret@",
        "http://user:s3cret@host:port",
        "http://user:s3cret@host:99999",
        "http://user:s3cret@[::1",
        "http://user:s3cret@ho st:8081",
        "http://user:s3cret@host:8081/a\nb",
        "http://user:s3cret@host:8081/?a=b",
        "HTTPS://user:s3cret@host:0",
        "http://user:s3cret@" + "a" * 70 + ".org",
    ],
)
def test_a_url_that_is_none_is_one_sentence_without_the_password(place: str) -> None:
    for ask in (SchemaSource(place).check, lambda: SchemaSource(place).schema(1)):
        with pytest.raises(Refused) as refused:
            ask()
        assert "registry" in str(refused.value) and "s3cret" not in str(refused.value)


def test_a_place_that_is_neither_a_url_nor_a_directory(tmp_path: object) -> None:
    with pytest.raises(Refused, match=r"neither the URL of a schema registry \(http://…\) nor a directory"):
        SchemaSource(f"{tmp_path}/gone").check()
    SchemaSource(str(tmp_path)).check()
    assert RegistryAddress.of("HTTP://host/") == ("http://host", "host", None)


@pytest.mark.parametrize(("code", "said"), [(401, "does not let this login in"), (403, "does not let this login in")])
def test_a_login_that_is_not_let_in_is_said(
    registry: str, monkeypatch: pytest.MonkeyPatch, code: int, said: str
) -> None:
    monkeypatch.setattr(Answers, "codes", [code])
    with pytest.raises(RegistryNotReached, match="does not let this login in") as problem:
        SchemaSource(registry).schema(2)
    assert "word" not in str(problem.value).replace("password", "")
    monkeypatch.setattr(Answers, "codes", [code])
    with pytest.raises(RegistryNotReached, match="asks for a login"):
        SchemaSource(registry.replace("user:word@", "")).schema(2)


def test_a_registry_is_asked_again_where_it_may_answer_in_a_moment(
    registry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Answers.known = {"/api/schemas/ids/2": {"schema": "{}"}}
    monkeypatch.setattr(Answers, "codes", [503, 429])
    assert SchemaSource(registry).schema(2).text == b"{}"
    monkeypatch.setattr(Answers, "codes", [503] * 9)
    with pytest.raises(RegistryNotReached, match="answers 503 to /schemas/ids/2"):
        SchemaSource(registry).schema(2)
    assert len(Answers.asked) == 6
    monkeypatch.setattr(Answers, "codes", [503] * 9)
    with pytest.raises(RegistryNotReached):  # What it says depends on how far the time reaches.
        SchemaSource(registry, timeout_s=0.05).schema(2)
    assert len(Answers.asked) <= 8


def test_an_answer_that_is_no_json(registry: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Answers, "bare", b"<html>" + b"[" * 100_000)
    with pytest.raises(RegistryNotReached, match="schema 2: 127"):
        SchemaSource(registry).schema(2)
    monkeypatch.setattr(Answers, "bare", b"[" * 100_000)
    with pytest.raises(RegistryNotReached, match="schema 2: 127"):
        SchemaSource(registry).schema(2)


def test_the_schemas_that_are_kept_are_bounded(registry: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moldau.tables.values.decoders.SCHEMAS_MAX", 2)
    Answers.known = {f"/api/schemas/ids/{each}": {"schema": "{}", "schemaType": "JSON"} for each in range(3)}
    values = FramedValueDecoder(SchemaSource(registry))
    for each in (0, 1, 1, 0, 2, 2, 0):
        assert values.decode(framed(each, b"7")) == 7
    assert [path.rpartition("/")[2] for path, _ in Answers.asked] == ["0", "1", "2", "0"]
