"""The process itself, of which the test's is one."""

from __future__ import annotations

import asyncio
import gc
import itertools
import resource
from pathlib import Path

import pytest

from moldau.broker.runtime.environment import LocalEnvironment, Process


def test_the_kernel_says_how_large_and_how_busy_the_process_is(tmp_path: Path) -> None:
    process = Process(lambda: 0)
    before = process.read()
    assert before is not None
    with (tmp_path / "a").open("w"):
        during = process.read()
    assert during is not None and during.open_fds == before.open_fds + 1 <= before.fds_max
    assert during.cpu_s >= before.cpu_s > 0
    assert 1 << 20 < during.resident_bytes < 1 << 36


def test_collections_of_garbage_are_told_between_start_and_stop() -> None:
    ticks = itertools.count(0, 1_000_000_000)
    process = Process(lambda: next(ticks))
    told: list[tuple[int, float]] = []
    process.start(lambda generation, pause_s: told.append((generation, pause_s)))
    gc.collect()
    process.stop()
    process.stop()
    gc.collect()
    assert (2, 1.0) in told and sum(generation == 2 for generation, _ in told) == 1


@pytest.mark.parametrize(("accepted_max", "raised_to"), [(1 << 62,) * 2, (10_240,) * 2, (300, 256)])
def test_the_limit_on_descriptors_is_raised_as_far_as_the_kernel_allows(
    accepted_max: int, raised_to: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel of macOS names no limit, and refuses more than 10,240."""
    limits = {resource.RLIMIT_NOFILE: (256, 1 << 62)}

    def set_limit(kind: int, given: tuple[int, int]) -> None:
        if given[0] > accepted_max:
            raise ValueError("current limit exceeds maximum limit")
        limits[kind] = given

    monkeypatch.setattr(resource, "getrlimit", limits.__getitem__)
    monkeypatch.setattr(resource, "setrlimit", set_limit)
    loop = asyncio.new_event_loop()
    environment = LocalEnvironment(loop)
    assert environment.raise_descriptors_max() == raised_to == environment.descriptors_max()
    environment.close()
    loop.close()
