#!/usr/bin/env bash
# pyiceberg 0.12.0 with pyarrow 26.0.1, seen 2026-11-29: `Table.add_files` to a table that is partitioned by a field of
# a struct records the partition NULL for each file, and then a filter on that field finds no row, without an error. The
# same file in a table partitioned by a column of its own, and the same rows by `append`, are found.
#   by a column, added:       partition de,   2 of 2 rows found
#   by a field, appended:     partition de,   2 of 2 rows found
#   by a field, added:        partition None, 0 of 2 rows found
set -euo pipefail
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
python3 -m venv "$home/venv"
"$home/venv/bin/pip" install -q --disable-pip-version-check 'pyiceberg[sql-sqlite]==0.12.0' pyarrow==26.0.1 || exit 2
cd "$home"
"$home/venv/bin/python" - <<'PYTHON'
import os
import sys

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import NestedField, StringType, StructType

country = StructType(NestedField(3, "country", StringType(), required=False))
schema = Schema(
    NestedField(1, "region", StringType(), required=False), NestedField(2, "value", country, required=False)
)
rows = pa.table(
    {"region": ["de", "de"], "value": [{"country": "de"}, {"country": "de"}]},
    schema=pa.schema([("region", pa.string()), ("value", pa.struct([("country", pa.string())]))]),
)
catalog = SqlCatalog("c", uri="sqlite:///catalog.db", warehouse="file://" + os.getcwd() + "/warehouse")
catalog.create_namespace("n")
pq.write_table(rows, "rows.parquet")


def seen(name, field_id, filtered, is_added):
    """The partition of the only file, and how many rows the filter finds."""
    spec = PartitionSpec(PartitionField(field_id, 1000, IdentityTransform(), "part"))
    table = catalog.create_table(f"n.{name}", schema, partition_spec=spec)
    table.add_files([os.getcwd() + "/rows.parquet"]) if is_added else table.append(rows)
    (partition,) = table.inspect.partitions().column("partition").to_pylist()
    return partition["part"], table.scan(row_filter=f"{filtered} == 'de'").to_arrow().num_rows


by_column = seen("by_column", 1, "region", True)
appended = seen("appended", 3, "value.country", False)
added = seen("added", 3, "value.country", True)
for name, (part, found) in {"by a column, added": by_column, "by a field, appended": appended, "by a field, added": added}.items():
    print(f"{name}: partition {part}, {found} of 2 rows found")
sys.exit(0 if (by_column, appended, added) == (("de", 2), ("de", 2), (None, 0)) else 1)
PYTHON
