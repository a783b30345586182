"""Makes a protocol message from JSON, for the responses that a test gives. A field may have its name in this project or
Kafka's name.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Final

from moldau.protocol.errors import ErrorCode
from moldau.protocol.schema import Field, WireType, default_struct, fields_of

UUID_SIZE: Final = 16


class InvalidFault(ValueError):
    """Raised if the JSON of a fault is invalid. The message says what is wrong, and which values are possible."""


def message_from_json(cls: type[object], value: object, where: str = "do.answer") -> object:
    """Make a message of the class `cls`, or a struct of one, from JSON. Fields that are not given have their defaults.

    A UUID and other bytes are given in base64. An error code may be given by its name. Raises `InvalidFault`.
    """
    if not isinstance(value, Mapping):
        raise InvalidFault(f"{where} is {value!r}, and must be an object")
    by_name = {field.name: field for field in fields_of(cls)}
    made = default_struct(cls)
    for given, one in value.items():
        name = given if given in by_name else re.sub(r"(?<!^)(?=[A-Z])", "_", str(given)).lower()
        field = by_name.get(name)
        if field is None:
            raise InvalidFault(f"{where}.{given} is unknown: here are {', '.join(by_name)}")
        setattr(made, field.name, _value(field, one, f"{where}.{given}"))
    return made


def _value(field: Field, value: object, where: str) -> object:
    if value is None:
        if field.nullable.last < field.nullable.first and field.struct is None:
            raise InvalidFault(f"{where} may not be null")
        return None
    if not field.is_array:
        return _one(field, value, where)
    if not isinstance(value, list):
        raise InvalidFault(f"{where} is {value!r}, and must be a list")
    return [_one(field, each, f"{where}[{index}]") for index, each in enumerate(value)]


def _one(field: Field, value: object, where: str) -> object:
    kind = field.kind
    if not isinstance(kind, WireType):
        return message_from_json(kind, value, where)
    if kind in (WireType.UUID, WireType.BYTES, WireType.RECORDS):
        return _bytes(value, where, UUID_SIZE if kind is WireType.UUID else None)
    if kind is WireType.STRING and isinstance(value, str):
        return value
    if kind is WireType.BOOL and isinstance(value, bool):
        return value
    if kind is WireType.FLOAT64 and isinstance(value, (int, float)):
        return float(value)
    if field.name.endswith("error_code") and isinstance(value, str) and value in ErrorCode.__members__:
        return int(ErrorCode[value])
    if kind not in (WireType.STRING, WireType.BOOL, WireType.FLOAT64) and type(value) is int:
        return value
    raise InvalidFault(f"{where} is {value!r}, and must be of the type {kind.name}")


def _bytes(value: object, where: str, size: int | None) -> bytes:
    try:
        text = value if isinstance(value, str) else ""
        found = base64.b64decode(text.translate({45: 43, 95: 47}) + "=" * (-len(text) % 4), validate=True)
    except binascii.Error as error:
        raise InvalidFault(f"{where} is not base64: {error}") from None
    if not isinstance(value, str) or size not in (None, len(found)):
        raise InvalidFault(f"{where} is {value!r}, and must be {size or 'some'} bytes in base64")
    return found
