"""The environments of the matrix: pinned engines that can be installed beside each other."""

from __future__ import annotations

from typing import Final

READERS: Final = ("crc32c", "google-re2", "zstandard", "lz4", "cramjam", "uvloop", "jinja2", "numpy")
"""What the readers of Moldau need besides PyArrow."""
ENVIRONMENTS: Final[dict[str, tuple[str, ...]]] = {
    "newest": (
        "pyarrow==26.0.1",
        "pandas==3.1.1",
        "polars==2.1.0",
        "duckdb==2.0.1",
        "datafusion==55.0.0",
        "deltalake==1.6.6",
        "pyiceberg[sql-sqlite]==0.12.0",
        "chdb==4.4.0",
    ),
    "older": (
        "pyarrow==26.0.1",
        "pandas==2.3.3",
        "duckdb==1.5.5",
        "duckdb-extensions==1.5.5",
        "duckdb-extension-avro==1.5.5",
        "duckdb-extension-delta==1.5.5",
        "duckdb-extension-iceberg==1.5.5",
        "deltalake==1.6.6",
        "pyiceberg[sql-sqlite]==0.12.0",
    ),
    "daft": (
        "daft==0.7.26",
        "pyarrow==25.0.1",
        "deltalake==1.6.6",
        "pyiceberg[sql-sqlite]==0.12.0",
        "sqlalchemy==2.1.9",
    ),
    "spark-4.1": (
        "pyspark==4.1.4",
        "pyarrow==26.0.1",
        "pandas==2.3.3",
        "pyiceberg[sql-sqlite]==0.12.0",
        "deltalake==1.6.6",
    ),
    "spark-4.2": ("pyspark[connect]==4.2.1", "pyarrow==26.0.1", "pandas==2.3.3"),
    "spark-4.3": ("pyspark[connect]==4.3.0", "pyarrow==26.0.1", "pandas==2.3.3"),
}
"""Daft wants another PyArrow than DataFusion, and PySpark a pandas before 3."""
CONNECT: Final = " by Connect"
RUNS: Final = (*ENVIRONMENTS, f"spark-4.2{CONNECT}", f"spark-4.3{CONNECT}")
"""The environments, and those that a process of its own runs a second time: a process has one kind of session."""
JARS: Final = {
    "spark-4.1": (
        "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
        "io.delta:delta-spark_4.1_2.13:4.1.0",
        "io.delta:delta-storage:4.1.0",
    )
}
"""What Spark needs for Iceberg and Delta, as Maven names it; there is none for newer versions of Spark."""
DELTA: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
"""The settings by which Spark reads Delta."""


def jar_name(artifact: str) -> str:
    """The file of an artifact of Maven."""
    _, name, version = artifact.split(":")
    return f"{name}-{version}.jar"
