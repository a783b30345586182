#!/usr/bin/env bash
# deltalake 1.6.6 (Python, delta-rs) with pyarrow 26.0.1, seen 2026-12-01: DeltaTable.delete and update change other rows than a
# query with the same predicate finds, without an error. They round a number of the predicate to the type of its column; the
# query compares the numbers. A NaN goes with the one number of its file. A number past the type is an error in a deletion.
# A program that copies the rows of a filter elsewhere and then deletes by it loses 2 and 10.01, and keeps 10.01 in both.
#   rows                                     predicate        found          gone
#   int 1, 2, 3, null                        x = 2.5          none           2
#   int 1, 2, 3, null                        x >= 2.5         3              2 3
#   decimal(10, 2) 10.00, 10.01, 10.02       x = 10.005       none           10.01
#   decimal(10, 2) 10.00, 10.01, 10.02       x > 10.005       10.01 10.02    10.02
#   double 3.0, NaN, 3.0                     x <= 3           3.0 3.0 3.0    3.0 3.0 NaN
#   double 3.0, NaN, 4.0                     x <= 3           3.0            3.0
#   int 1, 2, 3, null                        x < 3000000000   1 2 3          error: Can't cast value 3000000000 to type Int32
set -euo pipefail
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
python3 -m venv "$home/venv"
"$home/venv/bin/pip" install -q --disable-pip-version-check deltalake==1.6.6 pyarrow==26.0.1 || exit 2
cd "$home"
cat >look.py <<'PYTHON'
from collections import Counter
from decimal import Decimal

import pyarrow
from deltalake import DeltaTable, QueryBuilder, write_deltalake

nan = float("nan")
made = iter(range(99))


def texts(rows):
    return ["null" if each is None else str(each) for each in pyarrow.table(rows).column("x").to_pylist()]


def told(rows):
    return " ".join(sorted(rows)) or "none"


def tell(name, values, kind, predicate):
    path = f"table{next(made)}"
    write_deltalake(path, pyarrow.table({"x": pyarrow.array(values, kind)}))
    table = DeltaTable(path)
    before = texts(table.to_pyarrow_table())
    found = texts(QueryBuilder().register("t", table).execute(f"SELECT x FROM t WHERE {predicate}").read_all())
    try:
        table.delete(predicate)
    except Exception as problem:
        gone = f"error: {str(problem).splitlines()[0]}"
    else:
        gone = told((Counter(before) - Counter(texts(DeltaTable(path).to_pyarrow_table()))).elements())
    print(f"{name}, {predicate}: found {told(found)}, gone {gone}")


whole, amount = pyarrow.int32(), pyarrow.decimal128(10, 2)
amounts = [Decimal("10.00"), Decimal("10.01"), Decimal("10.02")]
for predicate in ("x = 2", "x = 2.5", "x >= 2.5", "x < 3000000000"):
    tell("int", [1, 2, 3, None], whole, predicate)
for predicate in ("x = 10.005", "x > 10.005"):
    tell("decimal", amounts, amount, predicate)
tell("3 NaN 3", [3.0, nan, 3.0], pyarrow.float64(), "x <= 3")
tell("3 NaN 4", [3.0, nan, 4.0], pyarrow.float64(), "x <= 3")
write_deltalake("updated", pyarrow.table({"x": pyarrow.array([1, 2, 3], whole)}))
updated = DeltaTable("updated")
updated.update(predicate="x = 2.5", updates={"x": "0"})
print("int, update where x = 2.5:", told(texts(DeltaTable("updated").to_pyarrow_table())))
PYTHON
venv/bin/python look.py | tee seen
diff seen - <<'SEEN' && echo "as seen: a deletion rounds the numbers of its predicate"
int, x = 2: found 2, gone 2
int, x = 2.5: found none, gone 2
int, x >= 2.5: found 3, gone 2 3
int, x < 3000000000: found 1 2 3, gone error: Cast error: Can't cast value 3000000000 to type Int32
decimal, x = 10.005: found none, gone 10.01
decimal, x > 10.005: found 10.01 10.02, gone 10.02
3 NaN 3, x <= 3: found 3.0 3.0 3.0, gone 3.0 3.0 nan
3 NaN 4, x <= 3: found 3.0, gone 3.0
int, update where x = 2.5: 0 1 3
SEEN
