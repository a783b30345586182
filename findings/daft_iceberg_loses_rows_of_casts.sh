#!/usr/bin/env bash
# Daft 0.7.26 with pyiceberg 0.12.0 and pyarrow 25.0.1, seen 2026-12-01: a filter that casts a column of an Iceberg table loses rows,
# without an error. The filter that chooses the files is made without the cast, so that "the day of the time is 1 January"
# is "the time is midnight of 1 January", and a file whose times are later is not read. In memory the same filter is right.
#   filter                        rows in memory   rows of the table
#   cast(time, date) = 2024-01-01 2                0
#   cast(amount, int64) = 2       2                0
#   cast(number, string) < '2'    2                0
#   cast(text, int64) > 9         2                TypeError
set -euo pipefail
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
cd "$home"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check daft==0.7.26 'pyiceberg[sql-sqlite]==0.12.0' pyarrow==25.0.1 || exit 2
cat >casts.py <<'PYTHON'
import os
from datetime import date, datetime

import daft
import pyarrow as pa
from daft import DataType, col
from pyiceberg.catalog.sql import SqlCatalog

catalog = SqlCatalog("c", uri="sqlite:///catalog.db", warehouse="file://" + os.getcwd() + "/warehouse")
catalog.create_namespace("n")
rows = pa.table(
    {
        "time": pa.array([datetime(2024, 1, 1, 9), datetime(2024, 1, 1, 10)], pa.timestamp("us")),
        "amount": [2.5, 2.75],
        "number": [10, 11],
        "text": ["10", "11"],
    }
)
table = catalog.create_table("n.t", rows.schema)
table.append(rows)
for name, where in {
    "cast(time, date) = 2024-01-01": col("time").cast(DataType.date()) == date(2024, 1, 1),
    "cast(amount, int64) = 2": col("amount").cast(DataType.int64()) == 2,
    "cast(number, string) < '2'": col("number").cast(DataType.string()) < "2",
    "cast(text, int64) > 9": col("text").cast(DataType.int64()) > 9,
}.items():
    told = []
    for frame in (daft.from_arrow(rows), daft.read_iceberg(table)):
        try:
            told.append(f"{len(frame.where(where).to_pylist())} rows")
        except Exception as problem:
            told.append(type(problem).__name__)
    print(f"{name}: in memory {told[0]}, of the table {told[1]}")
PYTHON
venv/bin/python casts.py 2>/dev/null | tee seen
diff seen - <<'SEEN' && echo "as seen: rows are lost"
cast(time, date) = 2024-01-01: in memory 2 rows, of the table 0 rows
cast(amount, int64) = 2: in memory 2 rows, of the table 0 rows
cast(number, string) < '2': in memory 2 rows, of the table 0 rows
cast(text, int64) > 9: in memory 2 rows, of the table TypeError
SEEN
