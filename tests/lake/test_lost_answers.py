"""Lost answers: the catalog does what it is asked, and then says that it failed, once for each call, and the process
lives on.

The follower is asked again, as a service that embeds it does, and has only its memory and what the catalog shows.
Whatever the answer that was lost: each offset is in one table once, no file is missing, and no file is left over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

pytest.importorskip("pyiceberg", reason="the extra moldau[iceberg] is not installed")

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

from moldau.lake.follower import Follower
from moldau.protocol.record_builder import Record
from moldau.tables.refusals import Refused
from tests.support.lake_stage import START_MS, LakeStage, all_offsets, framed

ORDER: Final = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
COMMIT, LOAD = "commit_table", "load_table"
ERRORS: Final[dict[str, tuple[str, Callable[[], Exception]]]] = {
    "unknown": (COMMIT, lambda: CommitStateUnknownException("500: the gateway has lost the answer")),
    # A proxy that repeats a request whose answer it lost is told that the table has changed: by the first request.
    "conflict": (COMMIT, lambda: CommitFailedException("409: the table has changed")),
    "connection": (LOAD, lambda: ConnectionResetError("connection reset by peer")),
}
"""The method whose answers are lost, and what is raised instead."""
ATTEMPTS_MAX: Final = 4
Failures: Final = (Refused, OSError, CommitStateUnknownException, CommitFailedException)


class LostAnswer:
    """Loses the answer to one call of the catalogs of this process, by its number; -1: to none."""

    def __init__(self, number: int, error: Callable[[], Exception]) -> None:
        self._number = number
        self._error = error
        self.calls: list[str] = []

    @contextmanager
    def planted(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patched:
            for name in (COMMIT, LOAD):
                patched.setattr(SqlCatalog, name, self._losing(name, getattr(SqlCatalog, name)))
            yield

    def _losing(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def asked(catalog: SqlCatalog, *arguments: Any, **named: Any) -> Any:
            answer = method(catalog, *arguments, **named)
            self.calls.append(name)
            if len(self.calls) - 1 == self._number:
                raise self._error()
            return answer

        return asked


def fit(number: int) -> Record:
    return Record(f"k{number % 3}".encode(), framed(1, ORDER, {"id": number}), START_MS + number)


def grow(stage: LakeStage) -> None:
    """Append rows and a misfit."""
    start = stage.ends.get(("t", 0), 0)
    stage.append([fit(start), Record(b"x", b"not framed", START_MS), fit(start + 2)])


class Story:
    """A topic that grows twice, and a living follower that takes it each time; a call that fails is made again."""

    def __init__(self, directory: Path, mode: str) -> None:
        self.stage = LakeStage(directory)
        self.stage.put_schema(1, ORDER)
        self._chosen: dict[str, Any] = {"mode": mode, "misfits": "dead-letter", "compact_files_min": 2}
        self.failures: list[Exception] = []

    def run(self, lost: LostAnswer) -> None:
        follower = None
        with lost.planted():
            for _ in range(2):
                grow(self.stage)
                for _ in range(ATTEMPTS_MAX):
                    try:
                        follower = follower or self._opened()
                        follower.catch_up()
                        break
                    except Failures as failure:
                        self.failures.append(failure)
                else:
                    pytest.fail(f"it does not go on: {self.failures}")

    def _opened(self) -> Follower:
        follower, _ = self.stage.open(registry=str(self.stage.schemas), **self._chosen)
        return follower

    def check(self) -> None:
        """Each record is in one of the two tables once, as its mode says, and each file is needed."""
        stage, offsets = self.stage, all_offsets(self.stage.ends.items())
        misfits = [each for each in offsets if each[1] % 3 == 1]
        assert stage.offsets("t_dead_letters") == misfits
        kept = [each for each in offsets if each not in misfits]
        if self._chosen["mode"] == "upsert":
            kept = kept[-2:]  # The newest row of each of two keys.
        assert stage.offsets() == kept
        self._opened()
        assert stage.orphans() == [] and stage.orphans("t_dead_letters") == []


@pytest.mark.parametrize(
    ("mode", "error"), [("append", "unknown"), ("append", "conflict"), ("append", "connection"), ("upsert", "unknown")]
)
def test_a_lost_answer_changes_no_row(tmp_path: Path, mode: str, error: str) -> None:
    method, make = ERRORS[error]
    unharmed, told = Story(tmp_path / "unharmed", mode), LostAnswer(-1, make)
    unharmed.run(told)
    unharmed.check()
    assert told.calls.count(COMMIT) >= 6, "two claims, and two commits of each table"
    for number, name in enumerate(told.calls):
        if name == method:
            story = Story(tmp_path / str(number), mode)
            story.run(LostAnswer(number, make))
            story.check()
            assert len(story.failures) == (error != "conflict"), "each lost answer is met once"
