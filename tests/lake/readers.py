"""Other readers of Iceberg tables: DuckDB and Spark, in versions for which the index has what they need for Iceberg.

Each has a directory of its own below `.tools/lake`, and runs as a process that sees it first: the versions differ from
those that this project uses otherwise. `fetch` fills the directories, by pip and Maven.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

CACHE: Final = Path(__file__).parents[2] / ".tools" / "lake"
DUCKDB: Final = "1.5.5"
"""The newest version whose extensions are packages."""
DUCKDB_EXTENSIONS: Final = ("parquet", "avro", "iceberg")
SPARK: Final = "4.1.4"
SPARK_JAR: Final = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
DUCKDB_PROGRAM: Final = """
import glob, sys, duckdb
con = duckdb.connect(":memory:", config={"allow_unsigned_extensions": "true"})
for name in sys.argv[3:]:
    (found,) = glob.glob(f"{sys.argv[2]}/duckdb_extension_{name}/extensions/*/*.duckdb_extension")
    con.execute(f"LOAD '{found}'")
query = f"SELECT count(*), count(DISTINCT (partition, \\"offset\\")) FROM iceberg_scan('{sys.argv[1]}')"
print(*con.execute(query).fetchone())
"""
SPARK_PROGRAM: Final = """
import sys
from pyspark.sql import SparkSession
settings = {"spark.jars": sys.argv[2], "spark.ui.enabled": "false", "spark.log.level": "ERROR"}
spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
rows = spark.read.format("iceberg").load(sys.argv[1])
print(rows.count(), rows.select("partition", "offset").distinct().count())
spark.stop()
"""


class Reader:
    """A reader with its directory."""

    def __init__(self, name: str, packages: tuple[str, ...], program: str, arguments: tuple[str, ...]) -> None:
        """`arguments` of the program follow the location of the table's metadata."""
        self.name = name
        self.home = CACHE / "-".join((name, *packages[0].split("==")[1:]))
        self._packages = packages
        self._program = program
        self._arguments = arguments

    @property
    def is_there(self) -> bool:
        return (self.home / "complete").exists()

    def fetch(self) -> None:
        """Install the packages, and what they need for Iceberg. Raises CalledProcessError."""
        if self.is_there:
            return
        shutil.rmtree(self.home, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, "--target", str(self.home), *self._packages], check=True)
        if self.name == "spark":
            goal = ("dependency:copy", f"-Dartifact={SPARK_JAR}", f"-DoutputDirectory={CACHE}")
            subprocess.run(["mvn", "-q", "-B", *goal], check=True)
        (self.home / "complete").touch()

    def counts(self, metadata: str) -> tuple[int, int]:
        """The rows and the different offsets of the table with these metadata."""
        variables = os.environ | {"PYTHONPATH": str(self.home)}
        command = [sys.executable, "-c", self._program, metadata, *self._arguments]
        ended = subprocess.run(command, env=variables, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
        rows, offsets = map(int, ended.stdout.split()[-2:])
        return rows, offsets


def readers() -> tuple[Reader, Reader]:
    """DuckDB and Spark."""
    _, name, version = SPARK_JAR.split(":")
    extensions = tuple(f"duckdb-extension-{each}=={DUCKDB}" for each in DUCKDB_EXTENSIONS)
    duckdb = ("duckdb", (f"duckdb=={DUCKDB}", *extensions), DUCKDB_PROGRAM)
    return (
        Reader(*duckdb, (str(CACHE / f"duckdb-{DUCKDB}"), *DUCKDB_EXTENSIONS)),
        Reader("spark", (f"pyspark=={SPARK}",), SPARK_PROGRAM, (str(CACHE / f"{name}-{version}.jar"),)),
    )
