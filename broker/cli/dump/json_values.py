"""JSON forms of bytes, ids and decoded messages."""

from __future__ import annotations

import base64

from moldau.protocol.schema import Field, Wire, fields_of

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


def shown_bytes(data: bytes | None) -> Json:
    """The bytes as text where they are printable text, else as {"base64": …}."""
    if data is None:
        return None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if all(character.isprintable() or character in "\t\n\r" for character in text):
        return text
    return {"base64": base64.b64encode(data).decode("ascii")}


def shown_id(data: bytes) -> str:
    """Apache Kafka's text of a 16-byte id."""
    return base64.urlsafe_b64encode(data).decode("ascii").rstrip("=")


def shown_message(message: object, version: int) -> dict[str, Json]:
    """The fields of a declared message that a version has."""
    return {
        field.name: _shown_field(field, getattr(message, field.name), version)
        for field in fields_of(type(message))
        if version in field.versions
    }


def _shown_field(field: Field, value: object, version: int) -> Json:
    if value is None:
        return None
    if field.is_array:
        assert isinstance(value, list)
        return [_shown_one(field, each, version) for each in value]
    return _shown_one(field, value, version)


def _shown_one(field: Field, value: object, version: int) -> Json:
    if field.struct is not None:
        return shown_message(value, version)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return shown_id(bytes(value)) if field.kind is Wire.UUID else shown_bytes(bytes(value))
    assert isinstance(value, (bool, int, float, str)), f"{field.name} holds a {type(value).__name__}"
    return value
