#!/usr/bin/env bash
# DuckDB 2.0.1, DataFusion 55.0.0, ClickHouse (chdb 4.4.0), Polars 2.1.0 and pyarrow 26.0.1, seen 2026-12-01: a decimal(10, 2) that a
# query makes shorter, or divides, is another amount in each engine, without an error. Polars differs from itself: round() of
# its SQL rounds a 5 up and of its expressions to even, and a quotient has eight places in SQL and two in expressions.
#                          DuckDB       DataFusion     ClickHouse   Polars, SQL        Polars       pyarrow
#   10.05 to (10, 1)       10.1         10.1           10.0         10.0               10.0         10.0
#   10.19 to (10, 1)       10.2         10.2           10.1         10.2               10.2         10.1
#   round(10.05, 1)        10.1         10.1           10.1         10.1               10.0         10.0
#   2.50 to an integer     3            2              2            2                  2            2
#   10.19 / 3.00           3.3966…65    3.396666       3.39         3.39666667         3.40         3.39666666666
# DuckDB's quotient is a double; the others are decimals, cut in DataFusion, ClickHouse and pyarrow. pyarrow's cast is with
# safe=False: without it, it refuses.
set -euo pipefail
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
cd "$home"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check datafusion==55.0.0 pyarrow==26.0.1 chdb==4.4.0 duckdb==2.0.1 polars==2.1.0 || exit 2
cat >digits.py <<'PYTHON'
from decimal import Decimal

import chdb
import datafusion
import duckdb
import polars
import pyarrow as pa
import pyarrow.compute as pc

rows = pa.table({"x": [Decimal(text) for text in ("10.05", "10.19", "2.50")]}, pa.schema([("x", pa.decimal128(10, 2))]))
three = pa.scalar(Decimal("3.00"), pa.decimal128(10, 2))
rows = rows.append_column("y", pa.array([three.as_py()] * 3, three.type))
frame = polars.from_arrow(rows)
x, y = polars.col("x"), polars.col("y")
context = datafusion.SessionContext()
context.register_record_batches("rows", [rows.to_batches()])
operations = {
    "cast(x as decimal(10, 1))": (x.cast(polars.Decimal(10, 1)), lambda: pc.cast(rows["x"], pa.decimal128(10, 1), safe=False)),
    "round(x, 1)": (x.round(1), lambda: pc.round(rows["x"], 1)),
    "cast(x as int)": (x.cast(polars.Int64), lambda: pc.cast(rows["x"], pa.int64(), safe=False)),
    "x / y": (x / y, lambda: pc.divide(rows["x"], rows["y"])),
}
for operation, (of_polars, of_pyarrow) in operations.items():
    query = f"select {operation} as z from rows"
    print(operation)
    print("  DuckDB:", *(value for (value,) in duckdb.execute(query).fetchall()))
    print("  DataFusion:", *context.sql(query).to_arrow_table()["z"].to_pylist())
    print("  ClickHouse:", *chdb.query(query.replace("from rows", "from Python(rows)"), "TSV").data().split())
    print("  Polars, SQL:", *polars.sql(query.replace("rows", "frame")).collect()["z"])
    print("  Polars:", *frame.select(z=of_polars)["z"])
    print("  pyarrow:", *of_pyarrow().to_pylist())
PYTHON
venv/bin/python digits.py | tee seen
diff seen - <<'SEEN' && echo "as seen: decimals lose digits in different ways"
cast(x as decimal(10, 1))
  DuckDB: 10.1 10.2 2.5
  DataFusion: 10.1 10.2 2.5
  ClickHouse: 10 10.1 2.5
  Polars, SQL: 10.0 10.2 2.5
  Polars: 10.0 10.2 2.5
  pyarrow: 10.0 10.1 2.5
round(x, 1)
  DuckDB: 10.1 10.2 2.5
  DataFusion: 10.1 10.2 2.5
  ClickHouse: 10.1 10.2 2.5
  Polars, SQL: 10.10 10.20 2.50
  Polars: 10.00 10.20 2.50
  pyarrow: 10.00 10.20 2.50
cast(x as int)
  DuckDB: 10 10 3
  DataFusion: 10 10 2
  ClickHouse: 10 10 2
  Polars, SQL: 10 10 2
  Polars: 10 10 2
  pyarrow: 10 10 2
x / y
  DuckDB: 3.35 3.3966666666666665 0.8333333333333334
  DataFusion: 3.350000 3.396666 0.833333
  ClickHouse: 3.35 3.39 0.83
  Polars, SQL: 3.35000000 3.39666667 0.83333333
  Polars: 3.35 3.40 0.83
  pyarrow: 3.35000000000 3.39666666666 0.83333333333
SEEN
