#!/usr/bin/env bash
# fastavro 1.13.1, seen 2026-11-29. The specification says that an invalid logical type (a decimal whose scale is above its
# precision, or without a precision) is to be ignored, and the base type used; fastavro refuses to read instead. A uuid on
# fixed(16), which Avro 1.12 has, is read as bytes, while one on string is a UUID.
#   decimal without precision:          KeyError: 'precision'
#   decimal with scale above precision: SchemaParseException: decimal scale must be less than or equal to the precision of 2
#   uuid on fixed(16):                  b'\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00'
#   uuid on string:                     UUID('00000000-0000-0000-0000-000000000000')
set -euo pipefail
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
python3 -m venv "$home/venv"
"$home/venv/bin/pip" install -q --disable-pip-version-check fastavro==1.13.1 || exit 2
cd "$home"
"$home/venv/bin/python" - <<'PYTHON'
import io
import sys

from fastavro import parse_schema, schemaless_reader


def outcome(schema, data):
    try:
        return repr(schemaless_reader(io.BytesIO(data), parse_schema(schema), None))
    except Exception as problem:
        return f"{type(problem).__name__}: {problem}"


bare = outcome({"type": "bytes", "logicalType": "decimal"}, b"\x02\x7f")
scaled = outcome({"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 4}, b"\x02\x7f")
fixed = outcome({"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}, bytes(16))
text = outcome({"type": "string", "logicalType": "uuid"}, b"\x48" + b"00000000-0000-0000-0000-000000000000")
print("decimal without precision:         ", bare)
print("decimal with scale above precision:", scaled)
print("uuid on fixed(16):                 ", fixed)
print("uuid on string:                    ", text)
is_as_seen = bare.startswith("KeyError") and scaled.startswith("SchemaParseException")
sys.exit(0 if is_as_seen and fixed.startswith("b'") and text.startswith("UUID") else 1)
PYTHON
