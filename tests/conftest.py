"""How `make test` spreads the tests over two processes, how tests are collected, and the profile of Hypothesis.

An example of Hypothesis has no deadline: how long it takes is decided by what else the machine does.

A file stays in one process, because its tests share what its fixtures build. All tests with Spark stay in one: they
share a JVM, which takes longer to start than most of them to run.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Generator
from typing import Final

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

SPARK: Final = "tests/spark/"

settings.register_profile("moldau", deadline=None)
settings.load_profile("moldau")


class Together(LoadScopeScheduling):  # type: ignore[misc] # pytest-xdist has no types
    """Spreads whole files, and the folder with Spark as if it were one."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return SPARK if path.startswith(SPARK) else path


@pytest.fixture(autouse=True)
def _no_log_is_left_on() -> Generator[None, None, None]:
    """A test that sends the log of this process to a terminal takes that back: later tests would write to its file,
    which is closed by then.
    """
    yield
    left = [each for each in logging.getLogger().handlers if type(each) is logging.StreamHandler]
    logging.getLogger().handlers[:] = [each for each in logging.getLogger().handlers if each not in left]
    assert not left


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without the garbage collector, which would walk all tests again and again: a fifth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """pytest-xdist asks for the scheduler if there are several processes."""
    return Together(config, log)
