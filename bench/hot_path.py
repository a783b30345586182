"""The CPU time that the broker itself uses for a small produce with all semantics."""

from __future__ import annotations

from bench.figures import Figure
from bench.groups import RunForm
from bench.subjects import Bench
from bench.throughput import measure_workloads
from bench.workloads import HOT_PATH


def measure(bench: Bench, form: RunForm) -> list[Figure]:
    return measure_workloads(bench, form, [HOT_PATH])
