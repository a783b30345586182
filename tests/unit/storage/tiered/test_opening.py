"""Which storage a setting opens."""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

import pytest

from moldau.storage.tiered.errors import InvalidStorageUrl
from moldau.storage.tiered.opening import open_storage
from moldau.storage.tiered.port import get_all
from tests.unit.storage.tiered.storages import VirtualTime, run


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_path_opens_a_directory(tmp_path: Path, scheme: str) -> None:
    pytest.importorskip("aiofiles")

    async def story() -> None:
        storage = open_storage(f"{scheme}{tmp_path}", Random(1), VirtualTime().sleep)
        await storage.put("a/b", b"1")
        assert await get_all(storage, "a/b", 9) == (tmp_path / "a" / "b").read_bytes() == b"1"

    run(story())


@pytest.mark.parametrize("url", ["relative/path", "", "bucket", "file://relative", "ftp://host/path"])
def test_anything_else_must_be_an_object_store(url: str) -> None:
    pytest.importorskip("obstore")
    with pytest.raises(InvalidStorageUrl):
        open_storage(url, Random(1), VirtualTime().sleep)


@pytest.mark.parametrize(
    ("url", "package", "module"),
    [("/tmp", "aiofiles", "directory_storage"), ("s3://bucket", "obstore", "object_storage")],
)
def test_a_package_that_is_missing_is_named(
    url: str, package: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"moldau.storage.tiered.{module}", raising=False)
    with pytest.raises(InvalidStorageUrl, match=rf"needs the package {package}: install moldau\[tiered\]"):
        open_storage(url, Random(1), VirtualTime().sleep)
