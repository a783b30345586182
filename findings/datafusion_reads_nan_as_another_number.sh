#!/usr/bin/env bash
# DataFusion 55.0.0 and deltalake 1.6.6 (Python) with pyarrow 26.0.1, seen 2026-12-01: a NaN of a Parquet file is read as another
# number, also without a filter and in a sum, without an error, if the other values of its column in the file are one number and
# none is null. The least and greatest value that Parquet keeps do not count NaN; both are then this number, and DataFusion gives
# it to each row without reading the column. It meets a measurement that stands still and is NaN now and then. deltalake does so in a
# query with a filter that the number satisfies; its to_pyarrow_table takes such a NaN for the number in a filter.
#   values         query                         answer
#   3.0 NaN 3.0    DataFusion, SELECT x          3.0 3.0 3.0      DuckDB 2.0.1 and pyarrow read 3.0 NaN 3.0
#   3.0 NaN 3.0    DataFusion, sum(x)            9.0
#   3.0 NaN 3.0    DataFusion, count of isnan    0
#   3.0 NaN null   DataFusion, SELECT x          3.0 NaN null
#   3.0 NaN 4.0    DataFusion, SELECT x          3.0 NaN 4.0
#   3.0 NaN 3.0    deltalake, SELECT x           3.0 NaN 3.0
#   3.0 NaN 3.0    deltalake, x <= 3             3.0 3.0 3.0
#   3.0 NaN 3.0    deltalake to pyarrow, x <= 3  3.0 NaN 3.0
# A file written without statistics of the column (write_statistics of pyarrow) is read right.
set -euo pipefail
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
python3 -m venv "$home/venv"
"$home/venv/bin/pip" install -q --disable-pip-version-check datafusion==55.0.0 deltalake==1.6.6 pyarrow==26.0.1 duckdb==2.0.1 || exit 2
cd "$home"
cat >look.py <<'PYTHON'
import os
import sys

import datafusion
import deltalake
import duckdb
import pyarrow
from pyarrow import parquet

nan = float("nan")


def numbers(table):
    return " ".join("null" if each is None else str(each) for each in pyarrow.table(table).column(0).to_pylist())


def tell(name, values, **settings):
    parquet.write_table(pyarrow.table({"x": pyarrow.array(values, pyarrow.float64())}), "values.parquet", **settings)
    context = datafusion.SessionContext()
    context.register_parquet("t", "values.parquet")
    for query in ("SELECT x FROM t", "SELECT sum(x) FROM t", "SELECT count(*) FROM t WHERE isnan(x)"):
        print(f"{name}, DataFusion, {query}:", numbers(context.sql(query).to_arrow_table()))


tell("3 NaN 3", [3.0, nan, 3.0])
print("3 NaN 3, pyarrow:", numbers(parquet.read_table("values.parquet")))
print("3 NaN 3, DuckDB:", *(str(value) for value, in duckdb.sql("SELECT x FROM 'values.parquet'").fetchall()))
tell("3 NaN 3, no statistics", [3.0, nan, 3.0], write_statistics=False)
tell("3 NaN null", [3.0, nan, None])
tell("3 NaN 4", [3.0, nan, 4.0])
deltalake.write_deltalake("delta", pyarrow.table({"x": [3.0, nan, 3.0]}))
delta = deltalake.DeltaTable("delta")
for query in ("SELECT x FROM t", "SELECT x FROM t WHERE x <= 3"):
    print(f"3 NaN 3, deltalake, {query}:", numbers(deltalake.QueryBuilder().register("t", delta).execute(query).read_all()))
print("3 NaN 3, deltalake to pyarrow, x <= 3:", numbers(delta.to_pyarrow_table(filters=[("x", "<=", 3.0)])))
sys.stdout.flush()
os._exit(0)  # Their threads may end a process that waits for them.
PYTHON
venv/bin/python look.py | tee seen
diff seen - <<'SEEN' && echo "as seen: NaN is read as the one number of its column"
3 NaN 3, DataFusion, SELECT x FROM t: 3.0 3.0 3.0
3 NaN 3, DataFusion, SELECT sum(x) FROM t: 9.0
3 NaN 3, DataFusion, SELECT count(*) FROM t WHERE isnan(x): 0
3 NaN 3, pyarrow: 3.0 nan 3.0
3 NaN 3, DuckDB: 3.0 nan 3.0
3 NaN 3, no statistics, DataFusion, SELECT x FROM t: 3.0 nan 3.0
3 NaN 3, no statistics, DataFusion, SELECT sum(x) FROM t: nan
3 NaN 3, no statistics, DataFusion, SELECT count(*) FROM t WHERE isnan(x): 1
3 NaN null, DataFusion, SELECT x FROM t: 3.0 nan null
3 NaN null, DataFusion, SELECT sum(x) FROM t: nan
3 NaN null, DataFusion, SELECT count(*) FROM t WHERE isnan(x): 1
3 NaN 4, DataFusion, SELECT x FROM t: 3.0 nan 4.0
3 NaN 4, DataFusion, SELECT sum(x) FROM t: nan
3 NaN 4, DataFusion, SELECT count(*) FROM t WHERE isnan(x): 1
3 NaN 3, deltalake, SELECT x FROM t: 3.0 nan 3.0
3 NaN 3, deltalake, SELECT x FROM t WHERE x <= 3: 3.0 3.0 3.0
3 NaN 3, deltalake to pyarrow, x <= 3: 3.0 nan 3.0
SEEN
