#!/usr/bin/env bash
# pyiceberg 0.12.0 with pyarrow 26.0.1, seen 2026-12-01: after a column of an Iceberg table was widened, a scan compares the rows of
# older files with a number of the old type. A number that only the new type holds makes the filter "always", which nulls
# pass too; a double is rounded to the float of the file, so that rows are lost; a decimal of more digits is an error. A
# rewrite of the same rows in the new types changes what the filter finds. Polars 2.1.0 finds the right rows in both.
# The rows 1, 2, null as int, then long; 0.1f, 0.5f, null as float, then double; 1.25, 2.50, null as decimal(9, 2), then (20, 2):
#   filter                                  finds            rewritten
#   id < 3000000000, id != 3000000000       1 2 null         1 2
#   ratio > 0.1                             0.5              0.1f 0.5
#   price < 99999999.99                     ArrowInvalid     1.25 2.50
set -euo pipefail
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
cd "$home"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check 'pyiceberg[sql-sqlite]==0.12.0' pyarrow==26.0.1 || exit 2
cat >filters.py <<'PYTHON'
import os
from decimal import Decimal

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.types import DecimalType, DoubleType, LongType

catalog = SqlCatalog("c", uri="sqlite:///catalog.db", warehouse="file://" + os.getcwd() + "/warehouse")
catalog.create_namespace("n")
rows = pa.table(
    {
        "id": pa.array([1, 2, None], pa.int32()),
        "ratio": pa.array([0.1, 0.5, None], pa.float32()),
        "price": pa.array([Decimal("1.25"), Decimal("2.50"), None], pa.decimal128(9, 2)),
    }
)


def told(read, column):
    try:
        return " ".join(str(each) for each in read()[column].to_pylist()) or "none"
    except pa.ArrowInvalid as problem:
        return f"ArrowInvalid: {str(problem)[:54]}"


wheres = ["id < 3000000000", "id != 3000000000", "ratio > 0.1", "price < 99999999.99"]
for place, where in enumerate(wheres):
    column = where.split()[0]
    table = catalog.create_table(f"n.t{place}", rows.schema)
    table.append(rows)
    with table.update_schema() as update:
        for name, kind in (("id", LongType()), ("ratio", DoubleType()), ("price", DecimalType(20, 2))):
            update.update_column(name, kind)
    found = told(lambda: table.scan(row_filter=where).to_arrow(), column)
    table.overwrite(table.scan().to_arrow())  # the same rows in a file of the new types
    print(f"{where}: finds {found}; rewritten {told(lambda: table.scan(row_filter=where).to_arrow(), column)}")
PYTHON
venv/bin/python filters.py 2>/dev/null | tee seen
diff seen - <<'SEEN' && echo "as seen: filters compare with numbers of the types of old files"
id < 3000000000: finds 1 2 None; rewritten 1 2
id != 3000000000: finds 1 2 None; rewritten 1 2
ratio > 0.1: finds 0.5; rewritten 0.10000000149011612 0.5
price < 99999999.99: finds ArrowInvalid: Decimal type with precision 10 does not fit into preci; rewritten 1.25 2.50
SEEN
