#!/usr/bin/env bash
# DuckDB 2.0.1, DataFusion 55.0.0 and ClickHouse (chdb 4.4.0), seen 2026-12-01: what a cast makes of a text of a time in a topic's JSON.
# DuckDB leaves the offset of a text out when it is cast to TIMESTAMP, also any word in the place of a zone; read_json
# does so for a column declared as TIMESTAMP, and applies the offset if it finds the type itself.
#   text, cast to                               DuckDB             DataFusion         ClickHouse
#   2024-01-01T00:00:00+02:00, timestamp        2024-01-01 00:00   2023-12-31 22:00   2023-12-31 22:00
#   2024-01-01 00:00:00 America/New_York        2024-01-01 00:00   2024-01-01 05:00   refused
#   2024-01-01 00:00:00 noon                    2024-01-01 00:00   refused            refused
#   2024-01-01 24:00:00                         2024-01-02 00:00   refused            2024-01-02 00:00
#   2016-12-31T23:59:60Z, a leap second         refused            2017-01-01 00:00   2017-01-01 00:00
#   2024-02-30, date; as a timestamp refused    refused            refused            2024-03-01
#   2024-01-01T23:00:00-05:00, date             2024-01-01         2024-01-02         refused
#   10:00, time                                 10:00:00           10:00:00           00:10:00
#   10:00:00+02:00, time                        10:00:00           refused            refused
set -euo pipefail
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
cd "$home"
export TZ=UTC
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check datafusion==55.0.0 pyarrow==26.0.1 chdb==4.4.0 duckdb==2.0.1 || exit 2
cat >texts.py <<'PYTHON'
import chdb
import datafusion
import duckdb

context = datafusion.SessionContext()
ask = {
    "DuckDB": lambda query: duckdb.execute(query).fetchone()[0],
    "DataFusion": lambda query: context.sql(query).to_arrow_table().column(0)[0].as_py(),
    "ClickHouse": lambda query: chdb.query(query, "TSV").data().strip(),
}


def tell(engine, query):
    try:
        return str(ask[engine](query))
    except Exception:
        return "refused"


casts = [
    ("timestamp", "DateTime64(0, 'UTC')", "2024-01-01T00:00:00+02:00"),
    ("timestamp", "DateTime64(0, 'UTC')", "2024-01-01 00:00:00 America/New_York"),
    ("timestamp", "DateTime64(0, 'UTC')", "2024-01-01 00:00:00 noon"),
    ("timestamp", "DateTime64(0, 'UTC')", "2024-01-01 24:00:00"),
    ("timestamp", "DateTime64(0, 'UTC')", "2016-12-31T23:59:60Z"),
    ("timestamp", "DateTime64(0, 'UTC')", "2024-02-30 00:00:00"),
    ("date", "Date32", "2024-02-30"),
    ("date", "Date32", "2024-01-01T23:00:00-05:00"),
    ("time", "Time", "10:00"),
    ("time", "Time", "10:00:00+02:00"),
]
for kind, clickhouse, text in casts:
    told = [tell(engine, f"select cast('{text}' as {clickhouse if engine == 'ClickHouse' else kind})") for engine in ask]
    print(f"{kind}, {text}:", ", ".join(told))
with open("rows.json", "w") as file:
    file.write('{"t":"2024-01-01T00:00:00+02:00"}\n')
for declared in ("", ", columns={t: 'TIMESTAMP'}"):
    print(f"DuckDB, read_json('rows.json'{declared}):", tell("DuckDB", f"select t::varchar from read_json('rows.json'{declared})"))
PYTHON
venv/bin/python texts.py | tee seen
diff seen - <<'SEEN' && echo "as seen: texts of times are read in three ways"
timestamp, 2024-01-01T00:00:00+02:00: 2024-01-01 00:00:00, 2023-12-31 22:00:00, 2023-12-31 22:00:00
timestamp, 2024-01-01 00:00:00 America/New_York: 2024-01-01 00:00:00, 2024-01-01 05:00:00, refused
timestamp, 2024-01-01 00:00:00 noon: 2024-01-01 00:00:00, refused, refused
timestamp, 2024-01-01 24:00:00: 2024-01-02 00:00:00, refused, 2024-01-02 00:00:00
timestamp, 2016-12-31T23:59:60Z: refused, 2017-01-01 00:00:00, 2017-01-01 00:00:00
timestamp, 2024-02-30 00:00:00: refused, refused, refused
date, 2024-02-30: refused, refused, 2024-03-01
date, 2024-01-01T23:00:00-05:00: 2024-01-01, 2024-01-02, refused
time, 10:00: 10:00:00, 10:00:00, 00:10:00
time, 10:00:00+02:00: 10:00:00, refused, refused
DuckDB, read_json('rows.json'): 2023-12-31 22:00:00+00
DuckDB, read_json('rows.json', columns={t: 'TIMESTAMP'}): 2024-01-01 00:00:00
SEEN
