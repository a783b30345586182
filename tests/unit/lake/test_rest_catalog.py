"""A table in a REST catalog: each offset once over restarts and crashes, and of two writers the later one goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyiceberg", reason="the extra moldau[iceberg] is not installed")

from moldau.lake.opening import catalog_of
from moldau.lake.sink import WriterReplaced
from tests.support.lake_stage import LakeStage, all_offsets
from tests.support.rest_catalog import TOKENS, RestCatalogServer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RestCatalogServer]:
    made = RestCatalogServer(tmp_path / "catalog")
    yield made
    made.close()


@pytest.fixture
def chosen(server: RestCatalogServer) -> dict[str, Any]:
    properties = {"type": "rest", "uri": server.uri}
    return {"warehouse": None, "catalog": "prod", "catalog_properties": properties, "table": "sales.orders"}


def offsets(stage: LakeStage, chosen: dict[str, Any]) -> list[tuple[int, int]]:
    table = catalog_of(stage.choices(**chosen)).load_table("sales.orders")
    rows = table.scan().to_arrow().select(["partition", "offset"]).to_pylist()
    return sorted((row["partition"], row["offset"]) for row in rows)


def test_each_offset_is_there_once(tmp_path: Path, server: RestCatalogServer, chosen: dict[str, Any]) -> None:
    stage = LakeStage(tmp_path)
    stage.numbered(30, days=2)
    stage.follow(**chosen)
    stage.numbered(10)

    class Crash(BaseException):
        pass

    def crash(step: str) -> None:
        stage.steps.append(step)
        if step == "manifests written" and stage.steps.count(step) == 2:
            raise Crash

    stage.steps.clear()
    follower, _ = stage.open(crash, **chosen)
    with pytest.raises(Crash):
        follower.catch_up()
    assert stage.follow(**chosen).progress.orphans_count > 0
    assert offsets(stage, chosen) == all_offsets(stage.ends.items())
    assert "POST /v1/namespaces/sales/tables/orders" in server.requests


def test_the_catalog_refuses_the_earlier_of_two_writers(tmp_path: Path, chosen: dict[str, Any]) -> None:
    stage = LakeStage(tmp_path)
    stage.numbered(10)
    first, _ = stage.open(**chosen)
    replaced: list[str] = []

    def replace(step: str) -> None:
        if step == "manifests written" and not replaced:
            replaced.append(step)
            stage.open(**chosen)

    late, _ = stage.open(**chosen)
    with pytest.raises(WriterReplaced):
        first.catch_up()
    replaced.append("the claim of the next one")
    interrupted, _ = stage.open(replace, **chosen)
    replaced.clear()
    with pytest.raises(WriterReplaced):
        interrupted.catch_up()
    assert interrupted.progress.conflicts_count == 1 and offsets(stage, chosen) == []
    with pytest.raises(WriterReplaced):
        late.catch_up()
    stage.follow(**chosen)
    assert offsets(stage, chosen) == all_offsets(stage.ends.items())


def test_a_token_of_oauth_that_expires_is_fetched_again(tmp_path: Path) -> None:
    server = RestCatalogServer(tmp_path / "guarded", credential="moldau:secret", requests_of_a_token=3)
    properties = {"type": "rest", "uri": server.uri, "credential": "moldau:secret", "scope": "lake"}
    properties["oauth2-server-uri"] = f"{server.uri}{TOKENS}"
    chosen = {"warehouse": None, "catalog": "prod", "catalog_properties": properties, "table": "sales.orders"}
    stage = LakeStage(tmp_path / "stage")
    stage.numbered(30)
    follower = stage.follow(**chosen)
    for _ in range(3):
        stage.numbered(10)
        follower.catch_up()
    assert server.tokens > 3 and offsets(stage, chosen) == all_offsets(stage.ends.items())
    server.close()
