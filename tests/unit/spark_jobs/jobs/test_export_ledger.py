"""In which order a run of an export becomes durable."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from moldau.spark_jobs.jobs.export_ledger import ExportedFile, ExportLedger, ExportRun
from moldau.storage.files.local_files import LocalFiles


def test_the_names_of_the_files_are_durable_before_the_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    sync, link = LocalFiles.sync_directory, os.link

    def synced(path: str) -> None:
        steps.append(f"sync {Path(path).name}")
        sync(path)

    def linked(source: Any, target: Any) -> None:
        steps.append(f"link {Path(target).name}")
        link(source, target)

    ledger = ExportLedger(str(tmp_path / "out"))
    number = ledger.begin("t", "cluster")
    staging = ledger.staging(number)
    (staging / "part.parquet").write_bytes(b"rows")
    monkeypatch.setattr(LocalFiles, "sync_directory", staticmethod(synced))
    monkeypatch.setattr(os, "link", linked)
    ledger.commit(ExportRun(number, "t", "cluster", {0: (0, 1)}, (ExportedFile("part.parquet", 1, 4),)))
    assert steps[:2] == [f"sync {staging.name}", f"link {number:08}.json"]
    assert (tmp_path / "out" / "part.parquet").read_bytes() == b"rows"
