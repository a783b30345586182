"""A cluster for a test on an event loop, which goes on while the test waits."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path

import pytest

from moldau.testing import AsyncCluster, Cluster
from moldau.testing.async_cluster import AsyncNode
from moldau.testing.node import Node

pytestmark = pytest.mark.processes


def test_the_loop_goes_on_while_records_are_waited_for() -> None:
    async def story() -> None:
        async with AsyncCluster() as kafka:
            await kafka.create_topic("t")
            found, _ = await asyncio.gather(kafka.records("t", 1), kafka.produce("t", "x", key="k"))
            assert [record.value for record in found] == [b"x"]
            async with kafka.assert_produces("t", 1) as written:
                await kafka.produce("t", "y")
            assert [record.value for record in written] == [b"y"]
            with pytest.raises(AssertionError, match="0 of 1"):
                async with kafka.assert_produces("t", timeout_s=0.1):
                    pass
            assert await kafka.committed("g") == {} and await kafka.topics() == ["t"]
            await kafka.delete_topic("t")
            await kafka.node(1).pause()
            await kafka.node(1).resume()
            await kafka.node(1).restart()
            await kafka.node(1).stop()
            await kafka.node(1).kill()
            assert "stopped" in kafka.node(1).log

    asyncio.run(story())


def test_a_start_that_is_cancelled_leaves_no_node() -> None:
    async def story() -> None:
        kafka = AsyncCluster()
        starting = asyncio.create_task(kafka.start())
        while not any(node.is_running for node in kafka.cluster.nodes):
            await asyncio.sleep(0.01)
        pid = kafka.cluster.node(1).pid
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert kafka.cluster.nodes == [] and not Path(f"/proc/{pid}").exists()

    asyncio.run(story())


@pytest.mark.parametrize("name", ["kafka-python", "aiokafka"])
def test_calls_at_once_do_not_disturb_one_another(name: str) -> None:
    async def story() -> None:
        async with AsyncCluster(client=name) as kafka:
            topics = [f"t{number}" for number in range(5)]
            await asyncio.gather(*(kafka.create_topic(topic) for topic in topics))
            await asyncio.gather(*(kafka.produce(topic, topic) for topic in topics))
            found = await asyncio.gather(*(kafka.records(topic, 1) for topic in topics))
            assert [[record.value for record in records] for records in found] == [[each.encode()] for each in topics]

    asyncio.run(story())


def test_the_methods_are_those_of_the_cluster_and_the_node() -> None:
    """Properties that a test reads without waiting are left to `cluster` and `node`."""
    for ours, theirs in ((AsyncCluster, Cluster), (AsyncNode, Node)):
        for name, method in inspect.getmembers(ours, inspect.isfunction):
            if not name.startswith("_"):
                assert list(inspect.signature(method).parameters) == list(
                    inspect.signature(getattr(theirs, name)).parameters
                )
    left = {name for name in vars(Node) if not name.startswith("_")} - set(vars(AsyncNode))
    assert left == {"pid", "is_running", "log_size", "log_since", "begin", "wait_until_serving", "close"}
