#!/usr/bin/env bash
# PySpark 4.2.1 and 4.3.0, seen 2026-11-29: a Python data source is planned once for each load() or view, and the reader
# that pushFilters has changed takes the place of the one that all later plans share. The predicates that it accepted
# stay in force for the next queries that push none, and for the other side of a union or join; Spark does not evaluate
# them again. Of a union of two parts both have the predicate of the last one: rows that satisfy neither.
#   PySpark 4.2.1: where, then all: (5, 5); where and all: 10; two wheres: 160; view: (5, 5)
#   PySpark 4.3.0: where, then all: (5, 5); where and all: 10; two wheres: 160; view: (5, 5)
# The right numbers are (5, 100), 105, 130 and (5, 100). Another load() is planned anew.
# Versions may be given as arguments.
set -euo pipefail
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
[ "$#" -gt 0 ] || set -- 4.2.1 4.3.0
command -v java >/dev/null || exit 2
cat >"$home/seen.py" <<'PYTHON'
import sys

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition, LessThan


class Reader(DataSourceReader):
    """The numbers below 100, or below what an accepted predicate says; the state is that of one reader."""

    end = 100

    def pushFilters(self, filters):
        for each in filters:
            if isinstance(each, LessThan):
                self.end = min(self.end, each.value)
            else:
                yield each

    def partitions(self):
        return [InputPartition(None)]

    def read(self, partition):
        return ((number,) for number in range(self.end))


class Numbers(DataSource):
    @classmethod
    def name(cls):
        return "numbers"

    def schema(self):
        return "n bigint"

    def reader(self, schema):
        return Reader()


settings = {"spark.ui.enabled": "false", "spark.sql.python.filterPushdown.enabled": "true"}
spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
spark.sparkContext.setLogLevel("OFF")
spark.dataSource.register(Numbers)
rows = spark.read.format("numbers").load()
first = rows.where("n < 5").count(), rows.count()
rows = spark.read.format("numbers").load()
union = rows.where("n < 5").unionAll(rows).count()
rows = spark.read.format("numbers").load()
parts = rows.where("n < 50").unionAll(rows.where("n < 80")).count()
rows = spark.read.format("numbers").load()
rows.createOrReplaceTempView("v")
view = spark.sql("SELECT 1 FROM v WHERE n < 5").count(), spark.sql("SELECT 1 FROM v").count()
print(f"PySpark {pyspark.__version__}: where, then all: {first}; where and all: {union}; two wheres: {parts}; view: {view}")
sys.exit(0 if (first, union, parts, view) == ((5, 5), 10, 160, (5, 5)) else 1)
PYTHON
for version in "$@"; do
    python3 -m venv "$home/$version"
    "$home/$version/bin/pip" install -q --disable-pip-version-check "pyspark==$version" pyarrow==26.0.1 || exit 2
    PYSPARK_PYTHON="$home/$version/bin/python" "$home/$version/bin/python" "$home/seen.py" 2>/dev/null
done
