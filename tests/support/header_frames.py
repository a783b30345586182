"""Keys and values whose schema is named in a header, as confluent-kafka 2.16.1 has written them, and their schemas.

Each was written by a serializer of confluent_kafka.schema_registry with `header_schema_id_serializer`, against a
registry that gave these GUIDs, and each but those of at most five bytes of Avro was read by its deserializer again
(findings/confluent_short_avro_in_header.sh).
"""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path
from typing import Any, Final, NamedTuple

GUID: Final = "11223344-5566-7788-9900-aabbccddee0"
"""The GUIDs but for their last digit."""
ORDER: Final = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "customer", "type": "string"}, {"name": "count", "type": "int"}],
}
SHOP: Final = b64decode(
    "CgpzaG9wLnByb3RvEgRzaG9wIhcKB0FkZHJlc3MSDAoEY2l0eRgBIAEoCSIvCgVPcmRlchIQCghjdXN0b21lchgBIAEoCRoUCgRMaW5lEgwKBHdo"
    "YXQYASABKAliBnByb3RvMw=="
)
"""A FileDescriptorProto: the messages Address (city), Order (customer) and Order.Line (what)."""


class Written(NamedTuple):
    header: bytes
    data: bytes
    value: Any
    """What was serialized."""


def _written(header: str, data: str, value: Any) -> Written:
    return Written(bytes.fromhex(header), bytes.fromhex(data), value)


WRITTEN: Final = {
    "Avro": _written("0111223344556677889900aabbccddee01", "0661646106", {"customer": "ada", "count": 3}),
    "Avro that begins with zeros": _written("0111223344556677889900aabbccddee01", "0000", {"customer": "", "count": 0}),
    "Avro bytes like a frame": _written("0111223344556677889900aabbccddee02", "0000000007616263", b"\0\0\0\0\7abc"),
    "JSON": _written("0111223344556677889900aabbccddee03", "7b22637573746f6d6572223a22616461227d", {"customer": "ada"}),
    "Protobuf, first message": _written("0111223344556677889900aabbccddee0500", "0a04726f6d65", {"city": "rome"}),
    "Protobuf, second message": _written(
        "0111223344556677889900aabbccddee050202", "0a04726f6d65", {"customer": "rome"}
    ),
    "Protobuf, nested message": _written("0111223344556677889900aabbccddee05040200", "0a04726f6d65", {"what": "rome"}),
    "Protobuf, empty": _written("0111223344556677889900aabbccddee05040200", "", {"what": ""}),
}
AVRO: Final = WRITTEN["Avro"]


def put_schemas(directory: Path) -> str:
    """Write the schemas of `WRITTEN` into a directory, under their GUIDs. Returns the directory."""
    directory.mkdir(exist_ok=True)
    (directory / f"{GUID}1.avsc").write_text(json.dumps(ORDER))
    (directory / f"{GUID}2.avsc").write_text('"bytes"')
    (directory / f"{GUID}3.json").write_text('{"type": "object"}')
    (directory / f"{GUID}5.desc").write_bytes(b"\x0a" + bytes([len(SHOP)]) + SHOP)
    return str(directory)
