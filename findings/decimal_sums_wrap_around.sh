#!/usr/bin/env bash
# DataFusion 55.0.0, pyarrow 26.0.1 and ClickHouse (chdb 4.4.0), seen 2026-12-01: a sum of decimals past 38 digits is another
# number, without an error. Up to 2^127 it has 39 digits, which its type decimal(38, s) does not hold; past it the sum wraps
# around to a negative one, although DataFusion and ClickHouse refuse x + x of the same column. pyarrow's mean is that sum
# divided. DuckDB 2.0.1 and Polars 2.1.0 refuse both sums. Amounts with eighteen places, as of tokens, get there at 1.7e20.
#   two of                   60000000000000000000        90000000000000000000
#   DataFusion, pyarrow      120000000000000000000       -160282366920938463463.374607431768211456
#   ClickHouse               120000000000000000000       -160282366920938463463.374607431768211456
#   mean, pyarrow            60000000000000000000        -80141183460469231731.687303715884105728
#   DuckDB, Polars           refused                     refused
set -euo pipefail
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
cd "$home"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check datafusion==55.0.0 pyarrow==26.0.1 chdb==4.4.0 duckdb==2.0.1 polars==2.1.0 || exit 2
venv/bin/python - >seen <<'PYTHON'
from decimal import Decimal

import chdb
import datafusion
import duckdb
import polars
import pyarrow as pa
import pyarrow.compute as pc


def tell(engine, ask):
    try:
        print(f"{engine}:", *ask())
    except Exception as problem:
        print(f"{engine}: refused" if "verflow" in str(problem) else problem)


for amount in ("60000000000000000000", "90000000000000000000"):
    rows = pa.table({"x": pa.array([Decimal(amount)] * 2, pa.decimal128(38, 18))})
    context = datafusion.SessionContext()
    context.register_record_batches("rows", [rows.to_batches()])
    print(f"twice {amount}")
    tell("DataFusion", lambda: context.sql("select sum(x) from rows").to_arrow_table().column(0).to_pylist())
    tell("DataFusion, x + x", lambda: context.sql("select x + x from rows limit 1").to_arrow_table().column(0).to_pylist())
    tell("pyarrow", lambda: [pc.sum(rows["x"]).as_py()])
    tell("pyarrow, by group", lambda: rows.group_by([]).aggregate([("x", "sum")]).column(0).to_pylist())
    tell("pyarrow, mean", lambda: [pc.mean(rows["x"]).as_py()])
    tell("ClickHouse", lambda: [chdb.query("select sum(x) from Python(rows)").data().strip()])
    tell("ClickHouse, x + x", lambda: [chdb.query("select x + x from Python(rows) limit 1").data().strip()])
    tell("DuckDB", lambda: duckdb.execute("select sum(x) from rows").fetchone())
    tell("Polars", lambda: [polars.from_arrow(rows)["x"].sum()])
PYTHON
cat seen
diff seen - <<'SEEN' && echo "as seen: sums of decimals wrap around"
twice 60000000000000000000
DataFusion: 120000000000000000000.000000000000000000
DataFusion, x + x: 120000000000000000000.000000000000000000
pyarrow: 120000000000000000000.000000000000000000
pyarrow, by group: 120000000000000000000.000000000000000000
pyarrow, mean: 60000000000000000000.000000000000000000
ClickHouse: 120000000000000000000
ClickHouse, x + x: 120000000000000000000
DuckDB: refused
Polars: refused
twice 90000000000000000000
DataFusion: -160282366920938463463.374607431768211456
DataFusion, x + x: refused
pyarrow: -160282366920938463463.374607431768211456
pyarrow, by group: -160282366920938463463.374607431768211456
pyarrow, mean: -80141183460469231731.687303715884105728
ClickHouse: -160282366920938463463.374607431768211456
ClickHouse, x + x: refused
DuckDB: refused
Polars: refused
SEEN
