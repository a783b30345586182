#!/usr/bin/env bash
# icebird 0.3.1 (JavaScript) reads a table of pyiceberg 0.12.0 with pyarrow 26.0.1, seen 2026-12-01: it finds the columns of a file by
# the names of the current schema and not by their ids, without an error, unless the file has a copy of its schema, which
# pyiceberg and others do not write. Two columns that have exchanged their names give each other's values, and a column that
# was dropped and added anew has its old values again, as those that were dropped to be forgotten.
# A row a = "was a", b = "was b", x = 1; then a and b are exchanged, and x is dropped and added:
#   pyiceberg   b = "was a", a = "was b", x = null
#   icebird     b = "was b", a = "was a", x = 1
set -euo pipefail
command -v npm >/dev/null || exit 2
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
cd "$home"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check 'pyiceberg[sql-sqlite]==0.12.0' pyarrow==26.0.1 || exit 2
npm install --silent --no-audit --no-fund --prefix . icebird@0.3.1 >/dev/null 2>&1 || exit 2
cat >table.py <<'PYTHON'
import os

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.types import IntegerType

catalog = SqlCatalog("c", uri="sqlite:///catalog.db", warehouse="file://" + os.getcwd() + "/warehouse")
catalog.create_namespace("n")
rows = pa.table({"a": ["was a"], "b": ["was b"], "x": pa.array([1], pa.int32())})
table = catalog.create_table("n.t", rows.schema)
table.append(rows)
for change in (
    lambda schema: schema.rename_column("a", "c"),
    lambda schema: schema.rename_column("b", "a"),
    lambda schema: schema.rename_column("c", "b"),
    lambda schema: schema.delete_column("x"),
    lambda schema: schema.add_column("x", IntegerType()),
):
    with table.update_schema() as schema:
        change(schema)
print("pyiceberg:", *table.scan().to_arrow().to_pylist())
with open("location", "w") as file:
    file.write(table.metadata_location.removeprefix("file://"))
PYTHON
cat >read.mjs <<'JS'
import { readFileSync } from 'node:fs'
import { icebergRead } from 'icebird'

globalThis.fetch = async (url, { method, headers } = {}) => { // gives icebird the files, as a server would
  const bytes = readFileSync(String(url).replace('file://', ''))
  if (method === 'HEAD') return new Response(null, { headers: { 'content-length': String(bytes.length) } })
  const range = new Headers(headers).get('range')?.match(/(\d+)-(\d*)/)
  if (!range) return new Response(bytes)
  return new Response(bytes.subarray(Number(range[1]), range[2] ? Number(range[2]) + 1 : undefined), { status: 206 })
}
const metadata = JSON.parse(readFileSync(readFileSync('location', 'utf8')))
for (const row of await icebergRead({ tableUrl: metadata.location, metadata })) console.log('icebird:', JSON.stringify(row))
JS
{ venv/bin/python table.py 2>/dev/null && node read.mjs; } | tee seen
diff seen - <<'SEEN' && echo "as seen: columns are read by name"
pyiceberg: {'b': 'was a', 'a': 'was b', 'x': None}
icebird: {"b":"was b","a":"was a","x":1}
SEEN
