#!/usr/bin/env bash
# DataFusion 55.0.0, pyarrow 26.0.1, pandas 3.1.1 with Arrow types and ClickHouse (chdb 4.4.0) beside DuckDB 2.0.1 and Polars 2.1.0,
# seen 2026-12-01: a NaN has a sign, and two NaNs are two groups. 0.0 / 0.0 and inf - inf are negative NaNs on x86, a NaN of
# a text is a positive one, so a topic of measurements has both. In DataFusion they are also at both ends of an order, and
# the least value is NaN. -0.0 is another group than 0.0 in the other three, and a search for 0.0 does not find it. pandas
# with Arrow types groups into four what drop_duplicates leaves as two. The values 0.0, -0.0, NaN, -NaN, `in` is `x in (0.0)`:
#                 groups   distinct   in   places in order
#   DataFusion    3        3          2    4 2 1 3, the least is NaN
#   ClickHouse    4        4          1    1 2 3 4
#   pyarrow       4        4          1    1 2 3 4
#   pandas, Arrow 4        2          1
#   DuckDB        2        2          2    1 2 3 4
#   Polars        2        2          2    1 2 3 4
set -euo pipefail
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
cd "$home"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check datafusion==55.0.0 pyarrow==26.0.1 pandas==3.1.1 chdb==4.4.0 duckdb==2.0.1 \
    polars==2.1.0 || exit 2
venv/bin/python - >seen <<'PYTHON'
import struct

import chdb
import datafusion
import duckdb
import pandas
import polars
import pyarrow as pa
import pyarrow.compute as pc

values = struct.pack("<ddQQ", 0.0, -0.0, 0x7FF8000000000000, 0xFFF8000000000000)
x = pa.Array.from_buffers(pa.float64(), 4, [None, pa.py_buffer(values)])
rows = pa.table({"x": x, "place": [1, 2, 3, 4]})
frame = polars.from_arrow(rows)
numbers, arrows = rows.to_pandas(), rows.to_pandas(types_mapper=pandas.ArrowDtype)
context = datafusion.SessionContext()
context.register_record_batches("rows", [rows.to_batches()])


def clickhouse(query):
    return [line.split("\t") for line in chdb.query(query.replace("from rows", "from Python(rows)"), "TSV").data().split("\n") if line]


def datafusion_rows(query):
    return [tuple(row.values()) for row in context.sql(query).to_arrow_table().to_pylist()]


ask = {"DataFusion": datafusion_rows, "ClickHouse": clickhouse, "DuckDB": lambda query: duckdb.execute(query).fetchall()}
for engine, run in ask.items():
    groups = len(run("select x, count(*) from rows group by x"))
    unlike = len(run("select distinct x from rows"))
    found = len(run("select place from rows where x in (0.0)"))
    order = [int(row[0]) for row in run("select place from rows order by x, place")]
    print(f"{engine}: groups {groups}, distinct {unlike}, in {found}, order {order}, min {float(run('select min(x) from rows')[0][0])}")
found = frame.filter(polars.col("x").is_in([0.0])).height
order = frame.sort("x", "place")["place"].to_list()
print(f"Polars: groups {frame.group_by('x').len().height}, distinct {frame['x'].n_unique()}, in {found}, order {order}")
found = pc.is_in(x, pa.array([0.0])).true_count
order = rows.sort_by([("x", "ascending"), ("place", "ascending")])["place"].to_pylist()
print(f"pyarrow: groups {rows.group_by('x').aggregate([]).num_rows}, distinct {len(pc.unique(x))}, in {found}, order {order}")
for name, each in (("pandas, NumPy", numbers), ("pandas, Arrow", arrows)):
    groups = len(each.groupby("x", dropna=False).size())
    print(f"{name}: groups {groups}, distinct {len(each.drop_duplicates('x'))}, in {int(each['x'].isin([0.0]).sum())}")
PYTHON
cat seen
diff seen - <<'SEEN' && echo "as seen: two NaNs are two groups"
DataFusion: groups 3, distinct 3, in 2, order [4, 2, 1, 3], min nan
ClickHouse: groups 4, distinct 4, in 1, order [1, 2, 3, 4], min 0.0
DuckDB: groups 2, distinct 2, in 2, order [1, 2, 3, 4], min -0.0
Polars: groups 2, distinct 2, in 2, order [1, 2, 3, 4]
pyarrow: groups 4, distinct 4, in 1, order [1, 2, 3, 4]
pandas, NumPy: groups 2, distinct 2, in 2
pandas, Arrow: groups 4, distinct 2, in 1
SEEN
