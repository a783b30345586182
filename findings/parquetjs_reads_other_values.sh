#!/usr/bin/env bash
# @dsnp/parquetjs 1.8.8 and hyparquet 1.33.0 read a file of pyarrow 26.0.1, seen 2026-11-30. Without an error:
#   column                    @dsnp/parquetjs              hyparquet
#   2023-11-14T22:13:20 INT96  80000000000000           the Date: the first has the nanoseconds of the day, without the day
#   unsigned 32 bits, 2^32-1  -1                           4294967295
#   unsigned 64 bits, 2^64-1  -1n                          18446744073709551615n
#   decimal(18, 2)            eight bytes                  a double: 9999999999999999.99 is 10000000000000000
#   a map with a key twice    both pairs                   the last pair
#   bytes FF FE               the bytes                    a text of two U+FFFD (utf8: false keeps them)
set -euo pipefail
command -v node >/dev/null && command -v npm >/dev/null || exit 2
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
cd "$home"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check pyarrow==26.0.1 || exit 2
npm install --silent --no-audit --no-fund --prefix . @dsnp/parquetjs@1.8.8 hyparquet@1.33.0 hyparquet-compressors@1.1.2 >/dev/null 2>&1 || exit 2
venv/bin/python - <<'PYTHON'
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq

columns = {
    "int96": pa.array([1_700_000_000_000_000_000, -1], pa.int64()).view(pa.timestamp("ns")),
    "uint32": pa.array([2**32 - 1, 1], pa.uint32()),
    "uint64": pa.array([2**64 - 1, 1], pa.uint64()),
    "decimal": pa.array([Decimal("9999999999999999.99"), Decimal("0.29")], pa.decimal128(18, 2)),
    "map": pa.array([[("a", 1), ("a", 2)], []], pa.map_(pa.string(), pa.int32())),
    "bytes": pa.array([b"\xff\xfe", b"a"]),
}
pq.write_table(pa.table(columns), "rows.parquet", use_deprecated_int96_timestamps=True)
PYTHON
cat >read.mjs <<'JS'
import { inspect } from 'node:util'
import { createRequire } from 'node:module'
import { asyncBufferFromFile, parquetReadObjects } from 'hyparquet'
import { compressors } from 'hyparquet-compressors'

const { ParquetReader } = createRequire(import.meta.url)('@dsnp/parquetjs')
const show = (name, row) => {
  for (const [column, value] of Object.entries(row)) {
    console.log(name, column, inspect(value, { depth: 9, breakLength: Infinity, compact: true }))
  }
}
const reader = await ParquetReader.openFile('rows.parquet')
show('parquetjs', await reader.getCursor().next())
await reader.close()
const file = await asyncBufferFromFile('rows.parquet')
show('hyparquet', (await parquetReadObjects({ file, compressors }))[0])
JS
node read.mjs | tee seen
diff seen - <<'SEEN' && echo "as seen: values are read as others"
parquetjs int96 80000000000000
parquetjs uint32 -1
parquetjs uint64 -1n
parquetjs decimal <Buffer 0d e0 b6 b3 a7 63 ff ff>
parquetjs map { key_value: [ { key: 'a', value: 1 }, { key: 'a', value: 2 } ] }
parquetjs bytes <Buffer ff fe>
hyparquet int96 2023-11-14T22:13:20.000Z
hyparquet uint32 4294967295
hyparquet uint64 18446744073709551615n
hyparquet decimal 10000000000000000
hyparquet map { a: 2 }
hyparquet bytes '��'
SEEN
