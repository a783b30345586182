#!/usr/bin/env bash
# DuckDB 2.0.1, DataFusion 55.0.0, ClickHouse (chdb 4.4.0), Polars 2.1.0 and pyarrow 26.0.1, seen 2026-12-01: a file of JSON lines, as
# a dump of a topic, gets its types from its first rows, and a later value of another type is changed or left out without
# an error. That a fraction is rounded is so with declared columns too (DuckDB columns={x: 'BIGINT'}, DataFusion schema=).
# 30,000 rows and then one or two:
#   rows, then             DuckDB     DataFusion   ClickHouse             Polars    pyarrow
#   {x:1}, 1.5 2.5         2 2        1 2          refuses                refuses   1.5 2.5
#   {x:null}, 5            null       refuses      5, as a text           refuses   5
#   {x:1}, 2^63            refuses    refuses      -9223372036854775808   refuses   9.223372036854776e+18
#   {x:1}, {x:1,y:2}       refuses    no y         no y                   no y      y
# As CSV, DuckDB rounds 2.5 to 3, and DataFusion reads each value after empty ones as null.
set -euo pipefail
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
cd "$home"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check datafusion==55.0.0 pyarrow==26.0.1 chdb==4.4.0 duckdb==2.0.1 polars==2.1.0 || exit 2
venv/bin/python - >seen <<'PYTHON'
import chdb
import datafusion
import duckdb
import polars
import pyarrow.csv
import pyarrow.json


def with_datafusion(register, path, **options):
    context = datafusion.SessionContext()
    getattr(context, register)("rows", path, **options)
    return context.sql("select * from rows").to_arrow_table().to_pylist()


def with_duckdb(query):
    result = duckdb.execute(query)
    names = [column[0] for column in result.description]
    return [dict(zip(names, row)) for row in result.fetchall()]


def with_clickhouse(kind, path):
    result = chdb.query(f"select * from file('{path}', '{kind}')", "JSONCompactEachRowWithNames").data().splitlines()
    names = eval(result[0])
    return [dict(zip(names, eval(row.replace("null", "None")))) for row in result[1:]]


def tell(engine, rows, read):
    try:
        print(f"  {engine}:", *({name: row.get(name) for name in sorted(row)} for row in read()[-rows:]))
    except Exception as problem:
        print(f"  {engine}: refused" if "30" in str(problem) or "pars" in str(problem) or "null" in str(problem).lower() else problem)


cases = [("1", ['"x":1.5', '"x":2.5']), ("null", ['"x":5']), ("1", ['"x":9223372036854775808']), ("1", ['"x":1,"y":2'])]
for first, later in cases:
    print(f"x: {first}, then", *later)
    with open("rows.json", "w") as file:
        file.writelines(f"{{{each}}}\n" for each in [f'"x":{first}'] * 30_000 + later)
    count = len(later)
    tell("DuckDB", count, lambda: with_duckdb("select * from 'rows.json'"))
    tell("DataFusion", count, lambda: with_datafusion("register_json", "rows.json"))
    tell("ClickHouse", count, lambda: with_clickhouse("JSONEachRow", "rows.json"))
    tell("Polars", count, lambda: polars.read_ndjson("rows.json").rows(named=True))
    tell("pyarrow", count, lambda: pyarrow.json.read_json("rows.json").to_pylist())
    if later[0] == '"x":1.5':
        schema = pyarrow.schema([("x", pyarrow.int64())])
        tell("DuckDB, BIGINT", count, lambda: with_duckdb("select * from read_json('rows.json', columns={x: 'BIGINT'})"))
        tell("DataFusion, int64", count, lambda: with_datafusion("register_json", "rows.json", schema=schema))
for first, later in (("1", ["1.5", "2.5"]), ('""', ["5"])):
    print(f"CSV, x: {first}, then", *later)
    with open("rows.csv", "w") as file:
        file.writelines(f"{each}\n" for each in ["x"] + [first] * 30_000 + later)
    count = len(later)
    tell("DuckDB", count, lambda: with_duckdb("select * from 'rows.csv'"))
    tell("DataFusion", count, lambda: with_datafusion("register_csv", "rows.csv"))
    tell("Polars", count, lambda: polars.read_csv("rows.csv").rows(named=True))
    tell("pyarrow", count, lambda: pyarrow.csv.read_csv("rows.csv").to_pylist())
PYTHON
cat seen
diff seen - <<'SEEN' && echo "as seen: later values are changed or left out"
x: 1, then "x":1.5 "x":2.5
  DuckDB: {'x': 2} {'x': 2}
  DataFusion: {'x': 1} {'x': 2}
  ClickHouse: refused
  Polars: refused
  pyarrow: {'x': 1.5} {'x': 2.5}
  DuckDB, BIGINT: {'x': 2} {'x': 2}
  DataFusion, int64: {'x': 1} {'x': 2}
x: null, then "x":5
  DuckDB: {'x': None}
  DataFusion: refused
  ClickHouse: {'x': '5'}
  Polars: refused
  pyarrow: {'x': 5}
x: 1, then "x":9223372036854775808
  DuckDB: refused
  DataFusion: refused
  ClickHouse: {'x': -9223372036854775808}
  Polars: refused
  pyarrow: {'x': 9.223372036854776e+18}
x: 1, then "x":1,"y":2
  DuckDB: refused
  DataFusion: {'x': 1}
  ClickHouse: {'x': 1}
  Polars: {'x': 1}
  pyarrow: {'x': 1, 'y': 2}
CSV, x: 1, then 1.5 2.5
  DuckDB: {'x': 2} {'x': 3}
  DataFusion: refused
  Polars: refused
  pyarrow: {'x': 1.5} {'x': 2.5}
CSV, x: "", then 5
  DuckDB: {'x': '5'}
  DataFusion: {'x': None}
  Polars: {'x': '5'}
  pyarrow: {'x': 5}
SEEN
