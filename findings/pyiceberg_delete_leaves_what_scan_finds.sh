#!/usr/bin/env bash
# pyiceberg 0.12.0 with pyarrow 26.0.1, seen 2026-12-01: Table.delete leaves rows that a scan with the same filter finds, without
# an error: a null that `not in` finds, and a NaN that `!=` and `not in` find. A program that copies the rows of a filter
# elsewhere and then deletes by it keeps them in both. The null is found by `not in` of two values, not by that of one or by !=.
# The rows x = 1, 2, 3, null and f = 1.0, 2.0, NaN, null; the rows that are found, and those of them that delete leaves:
#   filter                  found        left
#   x != 1                  2 3          none
#   x not in (1)            2 3          none
#   x not in (1, 2)         3 null       null
#   f != 1.0                2.0 NaN      NaN
#   f not in (1.0, 2.0)     NaN null     NaN null
set -euo pipefail
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
cd "$home"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check 'pyiceberg[sql-sqlite]==0.12.0' pyarrow==26.0.1 || exit 2
cat >delete.py <<'PYTHON'
import os

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

catalog = SqlCatalog("c", uri="sqlite:///catalog.db", warehouse="file://" + os.getcwd() + "/warehouse")
catalog.create_namespace("n")
rows = pa.table({"x": pa.array([1, 2, 3, None]), "f": pa.array([1.0, 2.0, float("nan"), None])})


def told(scan, column):
    return " ".join(map(str, scan.to_arrow()[column].to_pylist())) or "none"


for place, where in enumerate(("x != 1", "x not in (1)", "x not in (1, 2)", "f != 1.0", "f not in (1.0, 2.0)")):
    table = catalog.create_table(f"n.t{place}", rows.schema)
    table.append(rows)
    found = told(table.scan(row_filter=where), where[0])
    table.delete(where)
    print(f"{where}: {found}, all after the delete {told(table.scan(), where[0])}")
PYTHON
venv/bin/python delete.py 2>/dev/null | tee seen
diff seen - <<'SEEN' && echo "as seen: delete leaves rows that its filter finds"
x != 1: 2 3, all after the delete 1 None
x not in (1): 2 3, all after the delete 1 None
x not in (1, 2): 3 None, all after the delete 1 2 None
f != 1.0: 2.0 nan, all after the delete 1.0 nan None
f not in (1.0, 2.0): nan None, all after the delete 1.0 2.0 nan None
SEEN
