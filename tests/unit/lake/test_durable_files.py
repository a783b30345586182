"""The files of a table on this machine are synced, with their directories, before the catalog names them."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("pyiceberg", reason="the extra moldau[iceberg] is not installed")

from pyiceberg.catalog.sql import SqlCatalog

from moldau.lake.durable_files import SyncedFile
from tests.support.lake_stage import LakeStage


class SyncedPaths:
    """What was synced, and the size that a file had then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: dict[str, int] = {}
        self.entries: dict[str, set[str]] = {}
        for name in ("fsync", "fdatasync"):
            monkeypatch.setattr(os, name, partial(self._note, getattr(os, name)))

    def has(self, path: str) -> bool:
        """Whether the bytes of the file and the names on its path would be there after a power failure."""
        return self.sizes.get(path) == os.path.getsize(path) and self.has_name(path)

    def has_name(self, path: str) -> bool:
        return os.path.basename(path) in self.entries.get(os.path.dirname(path), ())

    def _note(self, sync: Callable[[int], None], descriptor: int) -> None:
        sync(descriptor)
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if os.path.isdir(path):
            self.entries[path] = set(os.listdir(path))
        else:
            self.sizes[path] = os.fstat(descriptor).st_size


def test_what_a_snapshot_names_is_durable_when_the_catalog_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = LakeStage(tmp_path)
    stage.numbered(30, days=2)
    synced = SyncedPaths(monkeypatch)
    write = SqlCatalog._write_metadata
    written: list[str] = []

    def checked(metadata: object, io: object, metadata_path: str) -> None:
        write(metadata, io, metadata_path)
        home = Path(metadata_path.removeprefix("file://")).parent.parent
        files = [str(each) for each in home.rglob("*") if each.is_file()]
        assert all(map(synced.has, files)), [each for each in files if not synced.has(each)]
        directories = [str(each) for each in home.rglob("*") if each.is_dir()]
        assert all(map(synced.has_name, [*directories, str(home), str(home.parent), str(stage.warehouse)]))
        written.extend(files)

    monkeypatch.setattr(SqlCatalog, "_write_metadata", staticmethod(checked))
    stage.follow()
    kinds = {(Path(each).suffix, Path(each).name.startswith("snap-")) for each in written}
    assert kinds == {(".json", False), (".avro", False), (".avro", True), (".parquet", False)}


def test_a_file_that_cannot_be_synced_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = SyncedFile(str(tmp_path / "a" / "b"))
    file.write(b"abc")

    def fail(_: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(OSError, match="Input/output error"):
        file.close()
    assert file.closed
