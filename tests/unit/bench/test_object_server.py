"""The object stores of a run of the bench."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any, ClassVar, cast

import pytest

from bench.subjects import Bench

pytest.importorskip("pyspark", reason="the extra moldau[spark] is not installed")

from bench import spark_reads


class Server:
    """A server that only notes where its files are."""

    homes: ClassVar[list[Path]] = []
    endpoint = "http://127.0.0.1:1"

    def __init__(self, home: Path, port: int) -> None:
        assert home.is_dir() and not list(home.iterdir()) and port
        (home / "bucket").mkdir()
        self.homes.append(home)

    def make_bucket(self, name: str) -> None:
        assert name

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


def test_each_group_of_a_run_has_an_object_store_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_reads, "find_program", lambda: None)
    monkeypatch.setattr(spark_reads, "ObjectServer", Server)
    bench = cast("Bench", SimpleNamespace(directory=tmp_path, free_pair=lambda: 1))
    with ExitStack() as stack:
        endpoints: list[Any] = [spark_reads.object_server(bench, stack) for _ in range(2)]
    assert endpoints == [Server.endpoint] * 2
    assert len(set(Server.homes)) == 2
