"""One Spark session for all tests with Spark: a JVM takes longer to start than most of them to run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from spark_jobs.session import local_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with local_session("tests", master="local[2]") as session:
        yield session
