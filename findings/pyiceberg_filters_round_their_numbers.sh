#!/usr/bin/env bash
# pyiceberg 0.12.0 with pyarrow 26.0.1, seen 2026-12-01: a filter compares with another number than the one it names, without an
# error, and Table.delete deletes what it finds. A number past the type of the column makes the filter "always", which nulls
# pass too: delete("x < 3000000000") of an int column empties the table. A fraction is rounded to the column's type: x = 2.5
# finds 2, a decimal(10, 2) = 10.005 finds 10.01, and the time of a day is its midnight. A float column is compared with a
# double if there is one number, and with a float if there are two.
# The rows 1, 2, 3, null; 10.00, 10.01, 10.02, null; 0.1, 0.2, 0.3, null; 1, 2 and 3 January, null; what is found, and deleted:
#   int x < 3000000000, x != 3000000000        1 2 3 null
#   int x > 2.5; x = 2.5                       3; 2
#   decimal(10, 2) > 10.005; = 10.005          10.02; 10.01: 10.01 is missing, and is found
#   float = 0.1; in (0.1, 0.2)                 none; 0.1 0.2
#   date < 2 January, noon; = the same         1 January; 2 January
set -euo pipefail
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
cd "$home"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check 'pyiceberg[sql-sqlite]==0.12.0' pyarrow==26.0.1 || exit 2
cat >filters.py <<'PYTHON'
import os
from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo, GreaterThan, LessThan

catalog = SqlCatalog("c", uri="sqlite:///catalog.db", warehouse="file://" + os.getcwd() + "/warehouse")
catalog.create_namespace("n")
amounts = pa.array([Decimal("10.00"), Decimal("10.01"), Decimal("10.02"), None], pa.decimal128(10, 2))
rows = pa.table(
    {
        "x": pa.array([1, 2, 3, None], pa.int32()),
        "amount": amounts,
        "ratio": pa.array([0.1, 0.2, 0.3, None], pa.float32()),
        "day": pa.array([date(2024, 1, 1), date(2024, 1, 2), date(2024, 1, 3), None]),
    }
)


def told(scan, column):
    values = scan.to_arrow()[column].to_pylist()
    return " ".join(f"{each:.1f}" if isinstance(each, float) else str(each) for each in values) or "none"


noon = datetime(2024, 1, 2, 12)
wheres = {
    "x < 3000000000": "x < 3000000000",
    "x != 3000000000": "x != 3000000000",
    "x > 2.5": "x > 2.5",
    "x = 2.5": "x = 2.5",
    "ratio = 0.1": "ratio = 0.1",
    "ratio in (0.1, 0.2)": "ratio in (0.1, 0.2)",
    "amount > 10.005": GreaterThan("amount", 10.005),
    "amount = 10.005": EqualTo("amount", 10.005),
    "day < noon of the 2nd": LessThan("day", noon),
    "day = noon of the 2nd": EqualTo("day", noon),
}
for place, (name, where) in enumerate(wheres.items()):
    column = name.split()[0]
    table = catalog.create_table(f"n.t{place}", rows.schema)
    table.append(rows)
    found = told(table.scan(row_filter=where), column)
    table.delete(where)
    print(f"{name}: finds {found}, delete leaves {told(table.scan(), column)}")
PYTHON
venv/bin/python filters.py 2>/dev/null | tee seen
diff seen - <<'SEEN' && echo "as seen: filters round the numbers they compare with"
x < 3000000000: finds 1 2 3 None, delete leaves none
x != 3000000000: finds 1 2 3 None, delete leaves none
x > 2.5: finds 3, delete leaves 1 2 None
x = 2.5: finds 2, delete leaves 1 3 None
ratio = 0.1: finds none, delete leaves 0.1 0.2 0.3 None
ratio in (0.1, 0.2): finds 0.1 0.2, delete leaves 0.3 None
amount > 10.005: finds 10.02, delete leaves 10.00 10.01 None
amount = 10.005: finds 10.01, delete leaves 10.00 10.02 None
day < noon of the 2nd: finds 2024-01-01, delete leaves 2024-01-02 2024-01-03 None
day = noon of the 2nd: finds 2024-01-02, delete leaves 2024-01-01 2024-01-03 None
SEEN
