#!/usr/bin/env bash
# parquet-go/parquet-go 0.32.0 (Go) reads a file of pyarrow 26.0.1, seen 2026-12-01: ReadFile[T] into a struct whose fields are of
# other types than the columns gives other values, without an error. Numbers wrap around; an unsigned 32-bit column is signed in
# any wider field; a decimal in 5 bytes is those bytes; a time of day in microseconds is taken for nanoseconds; a name that the file
# lacks, also one of other capitals, is zero. A null is zero, the text "0" and the day 1970-01-01; a pointer keeps it.
#   column, value                      field              read
#   int64 3000000000                   int32; int16       -1294967296; 24064
#   uint32 4294967295                  int64; float64     -1; -1
#   int8 -1                            uint64             18446744073709551615
#   decimal(10, 2) 1.28, -1.28         float64            2.716154612436e-312, 2.73737457034e-312
#   decimal(10, 2) 1.28, -1.28         int64              549755813888, 554050781183
#   time64[us] 01:02:03.000004         time.Duration      3.723000004s
#   timestamp[us] 1969-12-31T23:59:59.999999 int64, timestamp(millisecond) 0: 1970-01-01T00:00:00
#   double NaN                         int32              -2147483648, on x86
#   int64 null; date32 null            string             0; 1970-01-01
#   int64 1, in the column x           X, without a tag   0
set -euo pipefail
command -v go >/dev/null || exit 2
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
python3 -m venv "$home/venv"
"$home/venv/bin/pip" install -q --disable-pip-version-check pyarrow==26.0.1 || exit 2
cd "$home"
venv/bin/python - <<'PYTHON'
from datetime import date, datetime, time
from decimal import Decimal

import pyarrow as pa
from pyarrow import parquet

columns = {
    "x": pa.array([1, 3000000000, None], pa.int64()),
    "u": pa.array([1, 4294967295, None], pa.uint32()),
    "i": pa.array([1, -1, None], pa.int8()),
    "f": pa.array([1.5, float("nan"), None]),
    "d": pa.array([Decimal("1.28"), Decimal("-1.28"), None], pa.decimal128(10, 2)),
    "t": pa.array([time(1, 2, 3, 4), time(0, 0, 1), None], pa.time64("us")),
    "at": pa.array([datetime(2024, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999999), None], pa.timestamp("us")),
    "day": pa.array([date(2024, 1, 1), date(1969, 12, 31), None]),
}
parquet.write_table(pa.table(columns), "values.parquet")
PYTHON
go mod init values >/dev/null 2>&1
go get github.com/parquet-go/parquet-go@v0.32.0 >/dev/null 2>&1 || exit 2
cat >main.go <<'GO'
package main

import (
	"fmt"
	"time"

	"github.com/parquet-go/parquet-go"
)

func tell[T any](label string) {
	rows, err := parquet.ReadFile[T]("values.parquet")
	fmt.Println(label+":", rows, err)
}

func main() {
	tell[struct{ V int64 `parquet:"x"` }]("x, int64")
	tell[struct{ V int32 `parquet:"x"` }]("x, int32")
	tell[struct{ V int16 `parquet:"x"` }]("x, int16")
	tell[struct{ V string `parquet:"x"` }]("x, string")
	tell[struct{ X int64 }]("x, X")
	tell[struct{ V uint32 `parquet:"u"` }]("u, uint32")
	tell[struct{ V int64 `parquet:"u"` }]("u, int64")
	tell[struct{ V float64 `parquet:"u"` }]("u, float64")
	tell[struct{ V uint64 `parquet:"i"` }]("i, uint64")
	tell[struct{ V int32 `parquet:"f"` }]("f, int32")
	tell[struct{ V float64 `parquet:"d"` }]("d, float64")
	tell[struct{ V int64 `parquet:"d"` }]("d, int64")
	tell[struct{ V time.Duration `parquet:"t"` }]("t, time.Duration")
	tell[struct{ V int64 `parquet:"at,timestamp(millisecond)"` }]("at, milliseconds")
	tell[struct{ V string `parquet:"day"` }]("day, string")
}
GO
go mod tidy >/dev/null 2>&1 && go build -o values . || exit 2
./values | tee seen
diff seen - <<'SEEN' && echo "as seen: fields of other types have other values"
x, int64: [{1} {3000000000} {0}] <nil>
x, int32: [{1} {-1294967296} {0}] <nil>
x, int16: [{1} {24064} {0}] <nil>
x, string: [{1} {3000000000} {0}] <nil>
x, X: [{0} {0} {0}] <nil>
u, uint32: [{1} {4294967295} {0}] <nil>
u, int64: [{1} {-1} {0}] <nil>
u, float64: [{1} {-1} {0}] <nil>
i, uint64: [{1} {18446744073709551615} {0}] <nil>
f, int32: [{1} {-2147483648} {0}] <nil>
d, float64: [{2.716154612436e-312} {2.73737457034e-312} {0}] <nil>
d, int64: [{549755813888} {554050781183} {0}] <nil>
t, time.Duration: [{3.723000004s} {1ms} {0s}] <nil>
at, milliseconds: [{1704067200000} {0} {0}] <nil>
day, string: [{2024-01-01} {1969-12-31} {1970-01-01}] <nil>
SEEN
