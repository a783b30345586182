#!/usr/bin/env bash
# pyiceberg 0.12.0 with pyarrow 26.0.1, seen 2026-11-28: a NULL list or map whose elements are structs becomes an EMPTY
# one, both when `Table.append` writes it and when a scan reads a file in which it is null. Lists of numbers keep their
# nulls. A row that goes through either is changed for every engine.
#   appended, then read by pyarrow:   {'numbers': None, 'structs': [], 'mapped': []}
#   null in the file, then scanned:   {'numbers': None, 'structs': [], 'mapped': []}
#   null in the file, by pyarrow:     {'numbers': None, 'structs': None, 'mapped': None}
set -euo pipefail
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
python3 -m venv "$home/venv"
"$home/venv/bin/pip" install -q --disable-pip-version-check 'pyiceberg[sql-sqlite]==0.12.0' pyarrow==26.0.1 || exit 2
cd "$home"
"$home/venv/bin/python" - <<'PYTHON'
import os
import sys

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog


def stored(table):
    (path,) = [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]
    return pq.read_table(path).to_pylist()[0]


inner = pa.struct([("x", pa.int32())])
schema = pa.schema([("numbers", pa.list_(pa.int32())), ("structs", pa.list_(inner)), ("mapped", pa.map_(pa.string(), inner))])
null = {"numbers": None, "structs": None, "mapped": None}
rows = pa.Table.from_pylist([null], schema)
catalog = SqlCatalog("c", uri="sqlite:///catalog.db", warehouse="file://" + os.getcwd() + "/warehouse")
catalog.create_namespace("n")
appended = catalog.create_table("n.appended", schema)
appended.append(rows)
pq.write_table(rows, "rows.parquet")
added = catalog.create_table("n.added", schema)
added.add_files([os.getcwd() + "/rows.parquet"])
(scanned,) = added.scan().to_arrow().to_pylist()
print("appended, then read by pyarrow:  ", stored(appended))
print("null in the file, then scanned:  ", scanned)
print("null in the file, by pyarrow:    ", stored(added))
changed = {"numbers": None, "structs": [], "mapped": []}
sys.exit(0 if (stored(appended), scanned, stored(added)) == (changed, changed, null) else 1)
PYTHON
