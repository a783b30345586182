"""One Spark session for all tests with Spark: a JVM takes longer to start than most of them to run.

With MOLDAU_TEST_SPARK_MASTER=standalone it is a session on a cluster of several processes, which it starts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from moldau.spark_jobs.session import local_session
from tests.spark.standalone import SETTINGS, standalone_cluster

MASTER_VARIABLE = "MOLDAU_TEST_SPARK_MASTER"
FEW_TASKS = {"spark.sql.shuffle.partitions": "2"}
"""Spark's default is 200: so many tasks, and files, for what a test joins or groups."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    master = os.environ.get(MASTER_VARIABLE, "local[2]")
    if master != "standalone":
        with local_session("tests", master=master, settings=FEW_TASKS) as session:
            yield session
        return
    directory = tmp_path_factory.mktemp("spark")
    settings = SETTINGS | FEW_TASKS
    with standalone_cluster(directory) as url, local_session("tests", master=url, settings=settings) as session:
        yield session
