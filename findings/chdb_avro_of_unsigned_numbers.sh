#!/usr/bin/env bash
# ClickHouse 26.9.2.1 in chdb 4.4.0, seen 2026-12-01: its format Avro makes unsigned numbers
# negative, without an error; 32 bits are an Avro int, although a long would hold them, and so is an address. A time
# of seconds is a plain int. One of nanoseconds is a decimal of 18 digits that has 19: fastavro 1.13.1, which believes the
# schema, rounds the last one away.
#   ClickHouse      value                           Avro, read by fastavro
#   UInt32          4294967295                      int -1
#   UInt64          18446744073709551615            long -1
#   IPv4            192.168.0.1                     int -1062731775
#   DateTime        2024-01-01 00:00:00             int 1704067200
#   DateTime64(9)   2024-01-01 00:00:00.123456789   decimal(18, 9) 1704067200.12345679
# It reads these files back with the same wrong numbers, but for the last one.
set -euo pipefail
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
cd "$home"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check chdb==4.4.0 fastavro==1.13.1 cramjam==2.14.0 || exit 2
cat >avro.py <<'PYTHON'
import io

import chdb
import fastavro

values = {
    "UInt32": "toUInt32(4294967295)",
    "UInt64": "toUInt64(18446744073709551615)",
    "IPv4": "toIPv4('192.168.0.1')",
    "DateTime": "toDateTime('2024-01-01 00:00:00', 'UTC')",
    "DateTime64(3)": "toDateTime64('2024-01-01 00:00:00.123', 3, 'UTC')",
    "DateTime64(9)": "toDateTime64('2024-01-01 00:00:00.123456789', 9, 'UTC')",
}
for name, value in values.items():
    with open("value.avro", "wb") as file:
        file.write(chdb.query(f"select {value} as x", "Avro").bytes())
    with open("value.avro", "rb") as file:
        reader = fastavro.reader(io.BytesIO(file.read()))
        kind = reader.writer_schema["fields"][0]["type"]
        ((found,),) = (row.values() for row in reader)
    back = chdb.query("select x, toTypeName(x) from file('value.avro', 'Avro')", "TSV").data().split("\t")
    kind = kind if isinstance(kind, str) else f"{kind.get('logicalType', '')} {kind['type']}".strip()
    print(f"{name}: {kind}, {found}; read by ClickHouse: {back[1].strip()}, {back[0]}")
PYTHON
venv/bin/python avro.py | tee seen
diff seen - <<'SEEN' && echo "as seen: unsigned numbers are negative in Avro"
UInt32: int, -1; read by ClickHouse: Int32, -1
UInt64: long, -1; read by ClickHouse: Int64, -1
IPv4: int, -1062731775; read by ClickHouse: Int32, -1062731775
DateTime: int, 1704067200; read by ClickHouse: Int32, 1704067200
DateTime64(3): timestamp-millis long, 2024-01-01 00:00:00.123000+00:00; read by ClickHouse: DateTime64(3), 2024-01-01 00:00:00.123
DateTime64(9): decimal bytes, 1704067200.12345679; read by ClickHouse: Decimal(18, 9), 1704067200.123456789
SEEN
