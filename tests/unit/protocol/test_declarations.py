"""Every declaration is what Apache Kafka 4.3.1 says of the message, in every version; of 4.4.0 if it says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import pytest

from moldau.protocol.messages.fetch import FetchRequest, FetchResponse
from moldau.protocol.messages.list_offsets import ListOffsetsResponse
from moldau.protocol.schema import EMPTY, VERSION_MAX, ZERO_UUID, Field, Range, Spec, WireType, fields_of, spec_of
from tests.unit.protocol.facts.reading import FieldFact, MessageFact, declared, message_facts, versions_of

F = TypeVar("F", FieldFact, Field)

UNSTABLE_VERSIONS = {"InitProducerIdRequest": 6, "InitProducerIdResponse": 6}
"""The last version if the release does not serve it unless told to."""

TYPES = {
    WireType.BOOL: "bool",
    WireType.INT8: "int8",
    WireType.INT16: "int16",
    WireType.UINT16: "uint16",
    WireType.INT32: "int32",
    WireType.UINT32: "uint32",
    WireType.INT64: "int64",
    WireType.FLOAT64: "float64",
    WireType.UUID: "uuid",
    WireType.STRING: "string",
    WireType.BYTES: "bytes",
    WireType.RECORDS: "records",
}


class Line(NamedTuple):
    """One field in one version, as facts and declarations both can say it."""

    path: str
    type: str
    is_nullable: bool
    tag: int | None
    default: str


def listing_of_facts(fields: Sequence[FieldFact], version: int, path: str = "") -> list[Line]:
    lines = []
    for field in in_wire_order([field for field in fields if version in field.versions]):
        here = path + field.name
        lines.append(Line(here, field.type, version in field.nullable, field.tag, field.default))
        lines += listing_of_facts(field.fields, version, f"{here}.")
    return lines


def listing_of_declaration(fields: Sequence[Field], version: int, path: str = "") -> list[Line]:
    lines = []
    for field in in_wire_order([field for field in fields if version in field.versions]):
        here = path + field.name
        name = TYPES[field.kind] if isinstance(field.kind, WireType) else "{}"
        kind = "[]" + name if field.is_array else name
        lines.append(Line(here, kind, version in field.nullable, field.tag, default_text(field)))
        if field.struct is not None:
            lines += listing_of_declaration(fields_of(field.struct), version, f"{here}.")
    return lines


def in_wire_order(fields: list[F]) -> list[F]:
    tagged = [field for field in fields if field.tag is not None]
    return [field for field in fields if field.tag is None] + sorted(tagged, key=lambda field: field.tag or 0)


def default_text(field: Field) -> str:
    """A default in the words of the facts."""
    if field.struct is not None and not field.is_array:
        return "null" if field.nullable.first <= field.nullable.last and field.tag is None else ""
    if field.default is EMPTY or field.default in (0, "", b"", ZERO_UUID, False):
        return ""
    return "null" if field.default is None else "true" if field.default is True else str(field.default)


def differences(fact: MessageFact, spec: Spec, fields: Sequence[Field]) -> list[str]:
    """What a declaration says otherwise than the facts do."""
    found = [f"key {spec.key}, not {fact.key}"] if spec.key != fact.key else []
    if spec.versions not in allowed_versions(fact):
        found.append(f"versions {spec.versions}, not {fact.versions}")
    for version in versions_of(fact.versions):
        if version not in spec.versions:
            continue
        if (version in spec.flexible) != (version in fact.flexible):
            found.append(f"version {version} is {'not ' * (version not in fact.flexible)}flexible")
        want, have = listing_of_facts(fact.fields, version), listing_of_declaration(fields, version)
        if want != have:
            missing = [line for line in want if line not in have]
            extra = [line for line in have if line not in want]
            found.append(
                f"version {version}: missing {missing}, extra {extra}" if missing or extra else f"{version}: order"
            )
    return found


def allowed_versions(fact: MessageFact) -> list[Range]:
    """The versions of the release, with or without the one it calls unstable."""
    if UNSTABLE_VERSIONS.get(fact.name) == fact.versions.last:
        return [fact.versions, Range(fact.versions.first, fact.versions.last - 1)]
    return [fact.versions]


@pytest.mark.parametrize("name", sorted(declared()))
def test_a_declaration_equals_the_facts(name: str) -> None:
    cls = declared()[name]
    assert differences(message_facts()[name], spec_of(cls), fields_of(cls)) == []


def test_both_directions_of_an_api_are_declared() -> None:
    requests = {name.removesuffix("Request") for name in declared() if name.endswith("Request")}
    responses = {name.removesuffix("Response") for name in declared() if name.endswith("Response")}
    assert requests == responses


def changed(name: str, change: Callable[[Field], Field]) -> Callable[[list[Field]], list[Field]]:
    return lambda fields: [change(field) if field.name == name else field for field in fields]


MISTAKES: dict[str, Callable[[list[Field]], list[Field]]] = {
    "a first version one too high": changed("session_id", lambda field: field._replace(versions=Range(8, VERSION_MAX))),
    "a first version one too low": changed("rack_id", lambda field: field._replace(versions=Range(10, VERSION_MAX))),
    "a last version one too high": changed("replica_id", lambda field: field._replace(versions=Range(0, 15))),
    "a type": changed("session_epoch", lambda field: field._replace(kind=WireType.INT64)),
    "an array that is none": changed("rack_id", lambda field: field._replace(is_array=True)),
    "a null too many": changed("rack_id", lambda field: field._replace(nullable=Range(11, VERSION_MAX))),
    "a null too few": changed("cluster_id", lambda field: field._replace(nullable=Range(13, VERSION_MAX))),
    "a tag number": changed("cluster_id", lambda field: field._replace(tag=5)),
    "a tag where none is": changed("rack_id", lambda field: field._replace(tag=5)),
    "a default": changed("max_bytes", lambda field: field._replace(default=0)),
    "a name": changed("rack_id", lambda field: field._replace(name="rack")),
    "the order": lambda fields: [*fields[:3], fields[4], fields[3], *fields[5:]],
    "a field forgotten": lambda fields: [field for field in fields if field.name != "min_bytes"],
    "a struct of another message": changed("topics", lambda field: field._replace(kind=ListOffsetsResponse)),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_a_declaration_is_seen(mistake: str) -> None:
    fields = list(fields_of(FetchRequest))
    wrong = MISTAKES[mistake](fields)
    assert wrong != fields
    assert differences(message_facts()["FetchRequest"], spec_of(FetchRequest), wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        Spec(2, Range(4, 18), Range(12, VERSION_MAX)),
        Spec(1, Range(3, 18), Range(12, VERSION_MAX)),
        Spec(1, Range(4, 17), Range(12, VERSION_MAX)),
        Spec(1, Range(4, 18), Range(11, VERSION_MAX)),
        Spec(1, Range(4, 18), Range(13, VERSION_MAX)),
    ],
)
def test_a_mistake_in_the_head_of_a_declaration_is_seen(wrong: Spec) -> None:
    assert differences(message_facts()["FetchResponse"], wrong, fields_of(FetchResponse))
