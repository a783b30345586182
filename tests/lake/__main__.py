"""Kill a writer of tables at each step of a commit, and read the tables with other readers afterwards.

    python -m tests.lake --kills 100
    python -m tests.lake --kills 100 --duckdb DIR --spark OTHER --spark-jar JAR

DIR is a directory where `pip install --target` has put DuckDB and its extensions for Parquet, Avro and Iceberg, of one
version; OTHER is one with a version of pyspark for which there is a jar of Iceberg's Spark runtime, JAR.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.lake.campaign import campaign
from tests.support.lake_stage import LakeStage

DUCKDB = """
import glob, sys, duckdb
con = duckdb.connect(":memory:", config={"allow_unsigned_extensions": "true"})
for name in ("parquet", "avro", "iceberg"):
    (found,) = glob.glob(f"{sys.argv[2]}/duckdb_extension_{name}/extensions/*/*.duckdb_extension")
    con.execute(f"LOAD '{found}'")
query = f"SELECT count(*), count(DISTINCT (partition, \\"offset\\")) FROM iceberg_scan('{sys.argv[1]}')"
print(*con.execute(query).fetchone())
"""
SPARK = """
import sys
from pyspark.sql import SparkSession
settings = {"spark.jars": sys.argv[2], "spark.ui.enabled": "false", "spark.log.level": "ERROR"}
spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
rows = spark.read.format("iceberg").load(sys.argv[1])
print(rows.count(), rows.select("partition", "offset").distinct().count())
spark.stop()
"""


def counted(program: str, arguments: list[str], path: str) -> tuple[int, int]:
    """The rows and the different offsets of a table, as another reader prints them."""
    variables = os.environ | {"PYTHONPATH": path}
    ended = subprocess.run([sys.executable, "-c", program, *arguments], env=variables, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    rows, offsets = map(int, ended.stdout.split()[-2:])
    return rows, offsets


def main() -> None:
    """Run the campaign, and compare what the readers count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--duckdb", metavar="DIR")
    parser.add_argument("--spark", metavar="DIR")
    parser.add_argument("--spark-jar", metavar="JAR")
    arguments = parser.parse_args()
    began = time.monotonic()
    with TemporaryDirectory() as directory:
        root = Path(directory)
        killed = campaign(root, arguments.kills, arguments.seed, print)
        print(
            f"{killed.total()} kills in {time.monotonic() - began:.0f} s, each offset once, no orphan after a next run"
        )
        for step, count in sorted(killed.items()):
            print(f"  {count:3} {step}")
        for kind in ("append", "upsert", "dead-letter"):
            stage = LakeStage(root / kind)
            expected = len(stage.rows())
            place = stage.table().metadata_location
            if arguments.duckdb is not None:
                found = counted(DUCKDB, [place, arguments.duckdb], arguments.duckdb)
                assert found == (expected, expected), (kind, found)
                print(f"{kind}: DuckDB reads the same {expected:,} rows")
            if arguments.spark is not None:
                found = counted(SPARK, [place, arguments.spark_jar], arguments.spark)
                assert found == (expected, expected), (kind, found)
                print(f"{kind}: Spark reads the same {expected:,} rows")


if __name__ == "__main__":
    main()
