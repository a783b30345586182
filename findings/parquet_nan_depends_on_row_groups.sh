#!/usr/bin/env bash
# DuckDB 2.0.1, DataFusion 55.0.0, pyarrow 26.0.1, pyiceberg 0.12.0 and Polars 2.1.0, seen 2026-11-30: whether a filter finds a row
# whose double is NaN depends on the rows beside it in the file, so an append or a compaction changes the answer. DuckDB,
# DataFusion and Polars take NaN for the greatest number, pyarrow for none; the least and greatest value that Parquet and
# Iceberg keep know of no NaN, and are believed without it. It meets readers of measurements that a topic's table keeps.
# The rows 1.0, 50.0, NaN, 200.0 in one row group (of Iceberg: file), and in two, 3 + 1; the places that are found:
#   x > 100         DuckDB, DataFusion   3 4, then 4           Polars 3 4 in both
#   x > 100         pyarrow, pyiceberg   4 in both
#   not (x <= 100)  DuckDB, DataFusion, pyarrow, pyiceberg 3 4, then 4    Polars 3 4 in both
#   x <= 200        DuckDB               1 2 3 4 in both, and 1 2 4 of the same rows in memory: no row is above the greatest
set -euo pipefail
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
python3 -m venv "$home/venv"
"$home/venv/bin/pip" install -q --disable-pip-version-check duckdb==2.0.1 datafusion==55.0.0 pyarrow==26.0.1 polars==2.1.0 \
    'pyiceberg[sql-sqlite]==0.12.0' || exit 2
cd "$home"
venv/bin/python - <<'PYTHON' | tee seen
import math
import os

import datafusion
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog

rows = pa.table({"place": [1, 2, 3, 4], "x": [1.0, 50.0, math.nan, 200.0]})
catalog = SqlCatalog("c", uri="sqlite:///catalog.db", warehouse="file://" + os.getcwd())
catalog.create_namespace("n")
tables = {}
for count, size in ((1, 4), (2, 3)):
    pq.write_table(rows, f"{count}.parquet", row_group_size=size)
    tables[count] = catalog.create_table(f"n.t{count}", rows.schema)
    for start in range(0, 4, size):
        tables[count].append(rows.slice(start, size))
session = datafusion.SessionContext()


def by_datafusion(count, text):
    session.deregister_table("t")
    session.register_parquet("t", f"{count}.parquet")
    return session.sql(f"SELECT place FROM t WHERE {text}").to_arrow_table()


x = pc.field("x")
for text, wanted in {"x > 100": x > 100, "not (x <= 100)": ~(x <= 100), "x <= 200": x <= 200}.items():
    readers = {
        "DuckDB": lambda count: duckdb.sql(f"FROM '{count}.parquet' WHERE {text}").to_arrow_table(),
        "DuckDB, memory": lambda count: duckdb.sql(f"FROM rows WHERE {text}").to_arrow_table(),
        "DataFusion": lambda count: by_datafusion(count, text),
        "pyarrow": lambda count: ds.dataset(f"{count}.parquet").to_table(filter=wanted),
        "pyiceberg": lambda count: tables[count].scan(row_filter=text).to_arrow(),
        "Polars": lambda count: pl.scan_parquet(f"{count}.parquet").filter(pl.sql_expr(text)).collect().to_arrow(),
    }
    for name, read in readers.items():
        found = (sorted(read(count)["place"].to_pylist()) for count in (1, 2))
        print(f"{text}, {name}:", " then ".join(" ".join(map(str, each)) for each in found))
PYTHON
diff seen - <<'SEEN' && echo "as seen: a NaN is found or not by the rows beside it"
x > 100, DuckDB: 3 4 then 4
x > 100, DuckDB, memory: 3 4 then 3 4
x > 100, DataFusion: 3 4 then 4
x > 100, pyarrow: 4 then 4
x > 100, pyiceberg: 4 then 4
x > 100, Polars: 3 4 then 3 4
not (x <= 100), DuckDB: 3 4 then 4
not (x <= 100), DuckDB, memory: 3 4 then 3 4
not (x <= 100), DataFusion: 3 4 then 4
not (x <= 100), pyarrow: 3 4 then 4
not (x <= 100), pyiceberg: 3 4 then 4
not (x <= 100), Polars: 3 4 then 3 4
x <= 200, DuckDB: 1 2 3 4 then 1 2 3 4
x <= 200, DuckDB, memory: 1 2 4 then 1 2 4
x <= 200, DataFusion: 1 2 4 then 1 2 4
x <= 200, pyarrow: 1 2 4 then 1 2 4
x <= 200, pyiceberg: 1 2 4 then 1 2 4
x <= 200, Polars: 1 2 4 then 1 2 4
SEEN
