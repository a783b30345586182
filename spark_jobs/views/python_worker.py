"""What a Python worker of Spark does once, for all the tasks that it runs."""

from __future__ import annotations

import gc
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.datasource import InputPartition

    from moldau.spark_jobs.origins.port import Task


def task_of(partition: InputPartition) -> Task:
    """The task of a partition. Where a read has no tasks, Spark calls its reader with None: that task is empty."""
    spare_imports()
    task: Task = partition.value or ()
    return task


@cache
def spare_imports() -> None:
    """Keep what this process has imported out of the garbage collector.

    Spark's worker collects garbage after every task; with numpy and pyarrow imported that takes some 20 ms.
    """
    import_module("moldau.spark_jobs.decoding.record_columns")
    gc.freeze()
