"""A schema of Protobuf with several messages, and values whose frames name each of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

ID: Final = 9
"""The id of the schema."""
FRAMED: Final[dict[str, tuple[bytes, dict[str, Any]]]] = {
    "the first, in short": (b"\0" + b"\x08\x05", {"id": 5}),
    "the first": (b"\2\0" + b"\x08\x05", {"id": 5}),
    "the second": (b"\2\2" + b"\x0a\x01n", {"text": "n"}),
    "inside the first": (b"\4\0\0" + b"\x0a\x01s", {"sku": "s"}),
    "inside the second": (b"\4\2\0" + b"\x08\x01", {"done": True}),
}
"""The path of a message with a payload of it, and what they decode to."""
NO_MESSAGE: Final = (b"\2\4", b"\4\0\2", b"\6\2\0\0")
"""Paths at which the schema has no message."""


def frame(value: bytes) -> bytes:
    """A value as a serializer frames it."""
    return b"\0" + ID.to_bytes(4, "big") + value


def put_schema(directory: Path) -> None:
    """Write the schema into the directory of a registry."""
    from google.protobuf import descriptor_pb2, text_format  # type: ignore[import-untyped,unused-ignore]

    found = text_format.Parse(
        """name: "orders.proto" syntax: "proto3"
        message_type { name: "Order" field { name: "id" number: 1 type: TYPE_INT64 label: LABEL_OPTIONAL }
          nested_type { name: "Line" field { name: "sku" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL } } }
        message_type { name: "Note" field { name: "text" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
          nested_type { name: "State" field { name: "done" number: 1 type: TYPE_BOOL label: LABEL_OPTIONAL } } }""",
        descriptor_pb2.FileDescriptorProto(),
    )
    files = descriptor_pb2.FileDescriptorSet(file=[found])
    (directory / f"{ID}.desc").write_bytes(files.SerializeToString())
