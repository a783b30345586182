#!/usr/bin/env bash
# pyarrow 26.0.1, seen 2026-11-29: `pyarrow.array(values, type)` takes values that the type does not hold, and changes them
# in silence: 1.5 becomes 1 for int64, True becomes 1.0 for float64, a string becomes the list of its letters for
# list<string>. A cast of the same 1.5 is refused, as are 2**53 + 1 for float64 and True for int64.
#   array: 1.5 as int64 [1], True as float64 [1.0], 'abc' as list<string> [['a', 'b', 'c']]
#   cast:  1.5 as int64 Float value 1.500000 was truncated converting to int64
set -euo pipefail
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
python3 -m venv "$home/venv"
"$home/venv/bin/pip" install -q --disable-pip-version-check pyarrow==26.0.1 || exit 2
cd "$home"
"$home/venv/bin/python" - <<'PYTHON'
import sys

import pyarrow as pa

number = pa.array([1.5], pa.int64()).to_pylist()
truth = pa.array([True], pa.float64()).to_pylist()
letters = pa.array(["abc"], pa.list_(pa.string())).to_pylist()
try:
    cast = pa.array([1.5]).cast(pa.int64()).to_pylist()
except pa.ArrowInvalid as problem:
    cast = str(problem)
print(f"array: 1.5 as int64 {number}, True as float64 {truth}, 'abc' as list<string> {letters}")
print(f"cast:  1.5 as int64 {cast}")
is_as_seen = (number, truth, letters) == ([1], [1.0], [["a", "b", "c"]]) and "truncated" in cast
sys.exit(0 if is_as_seen else 1)
PYTHON
