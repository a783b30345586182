#!/usr/bin/env bash
# Polars 2.1.0, seen 2026-11-29: a map whose key is there twice keeps both pairs if it comes from Arrow, and loses all but
# the last one if it comes from a Parquet file, by read_parquet and scan_parquet (so also by scan_delta and
# scan_iceberg), without a warning. The pair takes the place of the first one. use_pyarrow=True keeps all.
#   from_arrow:                 [('a', 1), ('b', 5), ('a', 2)]
#   read_parquet:               [('a', 2), ('b', 5)]
#   scan_parquet:               [('a', 2), ('b', 5)]
#   read_parquet, use_pyarrow:  [('a', 1), ('b', 5), ('a', 2)]
set -euo pipefail
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
python3 -m venv "$home/venv"
"$home/venv/bin/pip" install -q --disable-pip-version-check polars==2.1.0 pyarrow==26.0.1 || exit 2
cd "$home"
"$home/venv/bin/python" - <<'PYTHON'
import sys

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

pairs = [("a", 1), ("b", 5), ("a", 2)]
rows = pa.table({"x": pa.array([pairs], pa.map_(pa.string(), pa.int64()))})
pq.write_table(rows, "rows.parquet")
frames = {
    "from_arrow": pl.from_arrow(rows),
    "read_parquet": pl.read_parquet("rows.parquet"),
    "scan_parquet": pl.scan_parquet("rows.parquet").collect(),
    "read_parquet, use_pyarrow": pl.read_parquet("rows.parquet", use_pyarrow=True),
}
seen = {name: frame.to_arrow().column("x").to_pylist()[0] for name, frame in frames.items()}
for name, each in seen.items():
    print(f"{name + ':':27} {each}")
lost = [("a", 2), ("b", 5)]
sys.exit(0 if list(seen.values()) == [pairs, lost, lost, pairs] else 1)
PYTHON
