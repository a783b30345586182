"""A table in an object store, by a catalog that pyiceberg is configured for: rows and orphans."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

pytest.importorskip("pyiceberg", reason="the extra moldau[iceberg] is not installed")

from pyiceberg.catalog import load_catalog

from moldau.lake import opening
from moldau.lake.orphans import ATTEMPT_NAME, referenced_files
from tests.support.lake_stage import LakeStage, all_offsets
from tests.support.s3_server import S3Server


@pytest.fixture
def server() -> Iterator[S3Server]:
    made = S3Server()
    yield made
    made.close()


@pytest.mark.processes
def test_rows_are_there_once_and_files_of_failed_attempts_are_deleted(
    tmp_path: Path, server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = boto3.client(
        "s3", endpoint_url=server.endpoint, aws_access_key_id="k", aws_secret_access_key="s", region_name="us-east-1"
    )
    store.create_bucket(Bucket="lakehouse")
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": "s3://lakehouse/house",
        "s3.endpoint": server.endpoint,
        "s3.access-key-id": "k",
        "s3.secret-access-key": "s",
        "s3.region": "us-east-1",
    }
    monkeypatch.setattr(opening, "load_catalog", lambda name, **given: load_catalog(name, **given, **properties))
    stage = LakeStage(tmp_path)
    chosen: dict[str, Any] = {"warehouse": None, "catalog": "prod", "table": "sales.orders"}
    stage.numbered(30, days=2)
    stage.follow(**chosen)
    stage.numbered(10)

    class Crash(BaseException):
        pass

    def crash(step: str) -> None:
        if step == "manifests written" and stage.steps.count("crash"):
            raise Crash
        if step == "claimed":
            stage.steps.append("crash")

    follower, _ = stage.open(crash, **chosen)
    with pytest.raises(Crash):
        follower.catch_up()
    stage.follow(**chosen)
    table = opening.catalog_of(stage.choices(**chosen)).load_table("sales.orders")
    rows = table.scan().to_arrow().select(["partition", "offset"]).to_pylist()
    assert sorted((row["partition"], row["offset"]) for row in rows) == all_offsets(stage.ends.items())
    listed = {each["Key"] for each in store.list_objects_v2(Bucket="lakehouse")["Contents"]}
    stored = {each for each in listed if not each.endswith("/")}  # Arrow keeps the folder of a file that it deletes.
    needed = {each.removeprefix("s3://lakehouse/") for each in referenced_files(table)}
    assert stored == needed and any(ATTEMPT_NAME.search(each) for each in stored)
