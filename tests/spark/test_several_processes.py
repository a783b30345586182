"""Tests of the data source again, on a standalone master with two workers.

A Python process has one Spark session, so these tests run in a process of their own.
MOLDAU_TEST_SPARK_MASTER=standalone pytest tests/spark runs all of them so.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from tests.spark.conftest import MASTER_VARIABLE
from tests.spark.standalone import ROOT, WORKERS

SUBSET: Final = (
    "test_several_processes.py::test_tasks_run_in_several_processes",
    *(
        f"test_data_source.py::test_{name}"
        for name in (
            "rows_have_the_columns_of_the_kafka_connector",
            "columns_and_offsets_are_pruned",
            "the_directories_of_a_broker_are_read_together",
            "a_corrupt_batch_fails_the_query_and_is_named",
            "no_stream_has_the_predicates_of_another_one",
            "tables_are_read_by_sql",
        )
    ),
)
"""The tests that `make test` runs so: one for each thing that reaches a task, or comes back, pickled: the reader with
its schema and options, places, errors, a stream's offsets, the other tables. How a query is planned is the driver's
matter, and the same on each master.
"""
TIMEOUT_S: Final = 300


@pytest.mark.processes
@pytest.mark.skipif(MASTER_VARIABLE in os.environ, reason="this is the run on several processes")
def test_the_same_tests_on_a_master_with_two_workers(tmp_path: Path) -> None:
    tests = [f"tests/spark/{each}" for each in SUBSET]
    words = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'inner'}"]
    environment = {**os.environ, MASTER_VARIABLE: "standalone"}
    done = subprocess.run(
        [*words, *tests], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


@pytest.mark.skipif(os.environ.get(MASTER_VARIABLE) != "standalone", reason="a local session has one process")
def test_tasks_run_in_several_processes(spark: SparkSession) -> None:
    def parent(_: object) -> int:
        return os.getppid()

    context = spark.sparkContext
    assert str(context.master).startswith("spark://")
    found = context.parallelize(range(40), 40).map(parent).distinct().collect()
    assert len(found) == WORKERS, found
