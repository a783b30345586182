"""A process that follows a topic and ends itself with SIGKILL at a named step of a commit.

The steps of the product are those of its port. Those inside of pyiceberg (a manifest begun, the metadata written, the
catalog asked) are seen by replacing its functions in this process.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from threading import Thread
from typing import Any, Final

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFile

from moldau.lake.follower import FollowPorts
from moldau.lake.opening import FollowChoices, LakePorts, open_follower
from moldau.lake.sink import SinkPorts
from moldau.storage.files.local_files import LocalFiles

STEPS: Final = (
    "table made",
    "data file begun",
    "data file written",
    "files written",
    "manifest begun",
    "manifest list begun",
    "manifests written",
    "catalog asked",
    "metadata begun",
    "metadata written",
    "committed",
    "claimed",
    "swept",
)
OCCURRENCES_MAX: Final = 4
"""A claim goes through the steps of a commit as well, so the second occurrence is that of the first round; with dead
letters the claims are two, the letters are the third commit, and the rows the fourth.
"""
ENDED_S_MAX: Final = 120
RUNS: Final = multiprocessing.get_context("forkserver")
"""Processes that have this module and its imports at once: they are forked from one that does nothing else."""


class Killer:
    """Ends the process at the nth occurrence of a step."""

    def __init__(self, step: str | None, occurrence: int) -> None:
        self._step = step
        self._left = occurrence

    def __call__(self, step: str) -> None:
        assert step in STEPS, f"{step} is not in the list of steps"
        if step == self._step:
            self._left -= 1
            if not self._left:
                os.kill(os.getpid(), signal.SIGKILL)


def follow(choices: FollowChoices, step: str | None, occurrence: int) -> None:
    """Let the table catch up, in this process."""
    killer = Killer(step, occurrence)
    watch_pyiceberg(killer)

    def now_ms() -> int:
        return time.time_ns() // 1_000_000

    ports = LakePorts(
        LocalFiles(),
        SinkPorts(os.urandom, now_ms, killer),
        FollowPorts(now_ms, lambda _: None, lambda: False),
        time.sleep,
    )
    follower, _ = open_follower(choices, ports)
    follower.catch_up()


def watch_pyiceberg(killer: Killer) -> None:
    """Report the steps inside of a commit."""
    create, write, commit = PyArrowFile.create, MetastoreCatalog._write_metadata, SqlCatalog.commit_table
    kinds = {".json": "metadata begun", ".parquet": None}

    def created(self: Any, overwrite: bool = False) -> Any:
        stream = create(self, overwrite)
        name = Path(self.location).name
        kind = kinds.get(Path(name).suffix, "manifest list begun" if name.startswith("snap-") else "manifest begun")
        if kind is not None:
            killer(kind)
        return stream

    def written(*arguments: Any, **named: Any) -> None:
        write(*arguments, **named)
        killer("metadata written")

    def asked(*arguments: Any, **named: Any) -> Any:
        killer("catalog asked")
        return commit(*arguments, **named)

    setattr(PyArrowFile, "create", created)  # noqa: B010 the types of the library forbid it
    setattr(MetastoreCatalog, "_write_metadata", staticmethod(written))  # noqa: B010
    setattr(SqlCatalog, "commit_table", asked)  # noqa: B010


def child(work: Callable[..., None], *arguments: Any) -> ForkServerProcess:
    """A process that does some work, not started yet. It ends when this process ends, in whatever way."""
    RUNS.set_forkserver_preload([__name__])
    return RUNS.Process(target=_with_parent, args=(work, *arguments))


def _with_parent(work: Callable[..., None], *arguments: Any) -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGKILL)

    Thread(target=end, daemon=True).start()
    work(*arguments)


def run(choices: FollowChoices, step: str | None = None, occurrence: int = 1, ended_s_max: float = ENDED_S_MAX) -> int:
    """Follow in a process of its own. Returns its exit code: -9 if it was killed."""
    process = child(follow, choices, step, occurrence)
    process.start()
    process.join(ended_s_max)
    code = process.exitcode
    if code is None:
        process.kill()
        process.join()
        raise AssertionError(f"the process has not ended within {ended_s_max} s")
    return code
