#!/usr/bin/env bash
# fastavro 1.13.1 and avro 1.12.2 (Python), seen 2026-11-30. A reader's schema may have fields that the writer's lacks; they
# take their defaults. The specification says that a default of bytes or fixed is text whose code points 0 to 255 are the
# bytes, so that "\u00ff" is FF, and that a field of a record's default that is absent takes its own default. Neither
# library does both, and neither says so:
#   field, default                    fastavro                  avro
#   bytes, "\u00ff"                   'ÿ' (text)                b'\xc3\xbf' (two bytes, UTF-8)
#   fixed of 2, "\u00ff\u0001"        'ÿ\x01' (text)            b'\xc3\xbf\x01' (three bytes)
#   record x=3 by default, y: {y: 4}  {'y': 4} (no x)           {'x': 3, 'y': 4}
#   date, 1                           1 (a number)              1 (a number)
#   decimal of scale 2, "\u0001\u0000"  '\x01\x00' (text)       b'\x01\x00' (bytes)
# A date and a decimal that the writer has are a date and a Decimal in both.
set -euo pipefail
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
python3 -m venv "$home/venv"
"$home/venv/bin/pip" install -q --disable-pip-version-check fastavro==1.13.1 avro==1.12.2 || exit 2
cd "$home"
"$home/venv/bin/python" - <<'PYTHON'
import datetime
import decimal
import io
import json
import sys

import avro.io
import avro.schema
import fastavro


def record(*fields):
    return {"type": "record", "name": "T", "fields": list(fields)}


kept = {"name": "kept", "type": "int"}
inner = record({"name": "x", "type": "int", "default": 3}, {"name": "y", "type": "int"}) | {"name": "Inner"}
money = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
day = {"type": "int", "logicalType": "date"}
writers = record(kept)
readers = record(
    kept,
    {"name": "bytes", "type": "bytes", "default": "\u00ff"},
    {"name": "fixed", "type": {"type": "fixed", "name": "Two", "size": 2}, "default": "\u00ff\u0001"},
    {"name": "record", "type": inner, "default": {"y": 4}},
    {"name": "date", "type": day, "default": 1},
    {"name": "decimal", "type": money, "default": "\u0001\u0000"},
)


def read(payload, writer, reader):
    by_fastavro = fastavro.schemaless_reader(io.BytesIO(payload), fastavro.parse_schema(writer), fastavro.parse_schema(reader))
    schemas = (avro.schema.parse(json.dumps(each)) for each in (writer, reader))
    return by_fastavro, avro.io.DatumReader(*schemas).read(avro.io.BinaryDecoder(io.BytesIO(payload)))


by_fastavro, by_avro = read(b"\x02", writers, readers)
print("fastavro:", by_fastavro)
print("avro:    ", by_avro)
written = record({"name": "date", "type": day}, {"name": "decimal", "type": money})
both = read(b"\x02\x04\x01\x00", written, written)
there = {"date": datetime.date(1970, 1, 2), "decimal": decimal.Decimal("2.56")}
is_as_seen = (
    by_fastavro
    == {"kept": 1, "bytes": "\xff", "fixed": "\xff\x01", "record": {"y": 4}, "date": 1, "decimal": "\x01\x00"}
    and by_avro
    == {
        "kept": 1,
        "bytes": b"\xc3\xbf",
        "fixed": b"\xc3\xbf\x01",
        "record": {"x": 3, "y": 4},
        "date": 1,
        "decimal": b"\x01\x00",
    }
    and both == (there, there)
)
print("as seen: defaults are not what the specification says" if is_as_seen else "changed")
sys.exit(not is_as_seen)
PYTHON
