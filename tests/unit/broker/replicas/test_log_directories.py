"""Which directories a node can be served from, and what is said of the others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from moldau.broker.config.loading import checked_config
from moldau.broker.replicas.log_directories import NodeDirectories, NotFormatted, read_directories
from moldau.broker.runtime.environment import Environment
from moldau.storage.checkpoints.meta_properties import (
    META_PROPERTIES_FILE,
    InvalidMetaProperties,
    MetaProperties,
    write_meta_properties,
)
from moldau.testing.simulation.disk import SimulatedDisk
from tests.support.node import PROPERTIES


def properties(node_id: int, cluster_id: str = "one", directory: bytes = b"d") -> MetaProperties:
    return MetaProperties(cluster_id=cluster_id, node_id=node_id, directory_id=directory * 16)


def looked_into(disk: SimulatedDisk) -> NodeDirectories:
    config = checked_config(PROPERTIES | {"log.dirs": "/data,/data2"})
    return read_directories(cast("Environment", SimpleNamespace(fs=disk)), config)


def disk_with(found: dict[str, MetaProperties]) -> SimulatedDisk:
    disk = SimulatedDisk("a seed")
    for path, each in found.items():
        disk.make_directories(path)
        write_meta_properties(disk, path, each)
    return disk


@pytest.mark.parametrize(
    ("found", "text"),
    [
        ({}, "/data: not formatted"),
        ({"/data2": properties(1)}, "/data: not formatted"),
        ({"/data": properties(1), "/data2": properties(2, directory=b"e")}, "node"),
        ({"/data": properties(1), "/data2": properties(1, "two", b"e")}, "cluster"),
        (
            {"/data": properties(7), "/data2": properties(7, directory=b"e")},
            "belongs to node 7, and the configuration says node.id=1",
        ),
    ],
)
def test_directories_that_cannot_be_served_say_why(found: dict[str, MetaProperties], text: str) -> None:
    with pytest.raises(NotFormatted, match=text):
        looked_into(disk_with(found))


BOTH = {"/data": properties(1), "/data2": properties(1, directory=b"e")}


@pytest.mark.parametrize("kind", ["missing", "damaged", "unreadable"])
def test_a_log_directory_that_cannot_be_used_is_left_out(kind: str) -> None:
    disk = disk_with({"/data": BOTH["/data"]} if kind == "missing" else BOTH)
    if kind == "damaged":
        disk.open(f"/data2/{META_PROPERTIES_FILE}").truncate(30)
    if kind == "unreadable":
        disk.break_directory("/data2")
    found = looked_into(disk)
    assert found.properties == {"/data": BOTH["/data"]} and found.unusable.keys() == {"/data2"}


@pytest.mark.parametrize(("kind", "error"), [("damaged", InvalidMetaProperties), ("unreadable", OSError)])
def test_without_the_metadata_directory_there_is_no_node(kind: str, error: type[Exception]) -> None:
    disk = disk_with(BOTH)
    if kind == "damaged":
        disk.open(f"/data/{META_PROPERTIES_FILE}").truncate(30)
    else:
        disk.break_directory("/data")
    with pytest.raises(error):
        looked_into(disk)
