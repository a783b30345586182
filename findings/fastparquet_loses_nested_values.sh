#!/usr/bin/env bash
# fastparquet 2026.9.0 with pandas 3.1.1 reads a file of pyarrow 26.0.1, seen 2026-11-30. Without an error:
#   a list of lists, a list of structs   every value is None
#   {l: null}, {l: []}, {l: [null]}      l is [], [None], [None]: a null list is empty, and an empty one has an element
#   the dates 0001-01-01, 10000-01-01    1754-08-30, 1816-03-30
#   a decimal(18, 2)                     a double: 9999999999999999.99 is 1e+16
#   a float16 of 1.5                     two bytes
# Timestamps in milliseconds and microseconds keep times past 9999.
set -euo pipefail
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
python3 -m venv "$home/venv"
"$home/venv/bin/pip" install -q --disable-pip-version-check fastparquet==2026.9.0 pandas==3.1.1 pyarrow==26.0.1 || exit 2
cd "$home"
"$home/venv/bin/python" - <<'PYTHON' | tee seen
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
from fastparquet import ParquetFile

number = pa.int32()
columns = {
    "lists": pa.array([[[1], []], []], pa.list_(pa.list_(number))),
    "structs": pa.array([[{"a": 1}], []], pa.list_(pa.struct([("a", number)]))),
    "inner": pa.array([{"l": None}, {"l": []}, {"l": [None]}, {"l": [1]}], pa.struct([("l", pa.list_(number))])),
    "date": pa.array([-719162, 2932897, 0], number).view(pa.date32()),
    "decimal": pa.array([Decimal("9999999999999999.99"), Decimal("0.29")], pa.decimal128(18, 2)),
    "half": pa.array([1.5], pa.float16()),
    "time": pa.array([253402300800000, 0]).view(pa.timestamp("ms")),
}
for name, column in columns.items():
    pq.write_table(pa.table({name: column}), "rows.parquet")
    frame = ParquetFile("rows.parquet").to_pandas()
    print(name, [str(each) for each in frame.iloc[:, 0]])
PYTHON
diff seen - <<'SEEN' && echo "as seen: values are lost or read as others"
lists ['None', 'None']
structs ['None', 'None']
inner ['[]', '[None]', '[None]', '[np.int32(1)]']
date ['1754-08-30 22:43:41.128654848', '1816-03-30 05:56:08.066277376', '1970-01-01 00:00:00']
decimal ['1e+16', '0.29']
half ["b'\\x00>'"]
time ['10000-01-01 00:00:00', '1970-01-01 00:00:00']
SEEN
