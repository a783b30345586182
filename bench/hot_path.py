"""The row of a small produce with all semantics: what it costs the broker in CPU of its own."""

from __future__ import annotations

from bench.figures import Figure
from bench.groups import Form
from bench.subjects import Bench
from bench.throughput import measured
from bench.workloads import HOT_PATH


def measure(bench: Bench, form: Form) -> list[Figure]:
    return measured(bench, form, [HOT_PATH])
