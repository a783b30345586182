"""`moldau spark audit` with Spark: intact logs of both tiers, then one with damage."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from moldau.spark_jobs.jobs.audit import AuditResult, plan_audit, run_audit
from moldau.spark_jobs.jobs.progress import JobProgress
from tests.support.segments import mixed_batches, write_checkpoints, write_partition
from tests.support.tiered_copy import tiered_directory


def audited(spark: SparkSession, path: str) -> AuditResult:
    plan = plan_audit({"path": path, "subscribe": "t"})
    return run_audit(spark, plan, JobProgress(print, plan.size, len(plan.tasks)))


def test_an_audit_of_both_tiers(spark: SparkSession, tmp_path: Path) -> None:
    local, tier = tmp_path / "local", tmp_path / "tier"
    local.mkdir()
    write_partition(local, mixed_batches(100, 5))
    write_checkpoints(local, {("t", 0): 500})
    sealed = tiered_directory(tier, local)
    intact = audited(spark, f"{local},{tier}")
    assert intact.is_intact, intact.problems
    assert intact.segments == 2 * len(sealed) + 1
    damaged = min(local.glob("t-0/*.log"))
    data = bytearray(damaged.read_bytes())
    data[70] ^= 1
    damaged.write_bytes(data)
    (problem,) = audited(spark, str(local)).problems
    assert (problem.check, problem.path, problem.offset) == ("checksum", str(damaged), 0)
