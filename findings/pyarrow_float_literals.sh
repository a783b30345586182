#!/usr/bin/env bash
# pyarrow 26.0.1, seen 2026-11-29: in a filter expression a literal float that a float32 holds (0.5, 40.5, 1.0) is made
# a float32, also one of the type float64, and the column is cast to it: a filter of an int64 column fails once the
# column has a value past 2^24. 40.1, which a float32 does not hold, is compared as a double. The kernel itself compares
# with 40.5 as a double.
#   16777216 >= 40.5: 1 row
#   16777217 >= 40.5: ArrowInvalid: Integer value 16777217 not in range: -16777216 to 16777216
#   16777217 >= 40.5 of float64: ArrowInvalid: Integer value 16777217 not in range: -16777216 to 16777216
#   16777217 >= 40.1: 1 row
#   cast(16777217 as float64) >= 40.5: 1 row
#   compute.greater_equal(16777217, 40.5): True
set -euo pipefail
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
python3 -m venv "$home/venv"
"$home/venv/bin/pip" install -q --disable-pip-version-check pyarrow==26.0.1 || exit 2
"$home/venv/bin/python" - <<'PYTHON'
import sys

import pyarrow as pa
import pyarrow.compute as pc


def rows(value, wanted):
    try:
        return f"{pa.table({'x': pa.array([value])}).filter(wanted).num_rows} row"
    except pa.ArrowException as problem:
        return f"{type(problem).__name__}: {problem}"


x = pc.field("x")
seen = {
    "16777216 >= 40.5": rows(16777216, x >= 40.5),
    "16777217 >= 40.5": rows(16777217, x >= 40.5),
    "16777217 >= 40.5 of float64": rows(16777217, x >= pa.scalar(40.5, pa.float64())),
    "16777217 >= 40.1": rows(16777217, x >= 40.1),
    "cast(16777217 as float64) >= 40.5": rows(16777217, x.cast("float64") >= 40.5),
    "compute.greater_equal(16777217, 40.5)": str(pc.greater_equal(pa.array([16777217]), 40.5)[0].as_py()),
}
for name, each in seen.items():
    print(f"{name}: {each}")
refused = "ArrowInvalid: Integer value 16777217 not in range: -16777216 to 16777216"
sys.exit(0 if list(seen.values()) == ["1 row", refused, refused, "1 row", "1 row", "True"] else 1)
PYTHON
