"""A node whose disk refuses to read the metadata log, or a snapshot of it, that a peer asks for."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from typing import Any

from moldau.protocol.batch_iterator import iterate_batches
from tests.simulation.cluster.nemesis import LENGTH_BYTES
from tests.support.cluster import Cluster
from tests.support.failed_handlers import failed_handlers


def live(story: Callable[[Cluster], Awaitable[None]], **properties: Any) -> None:
    """Nobody is to fall over what it is asked."""
    complaints: list[str] = []
    with Cluster(1, **properties) as cluster, failed_handlers(complaints):
        cluster.live(story)
    assert not complaints


def test_a_leader_that_cannot_read_what_it_leads_ends_and_another_leads() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.settled()
        leader = cluster.leader_of_quorum()
        assert leader is not None
        leader.host.may_halt = True
        leader.host.disk.faults.read_error = 1.0
        await cluster.create("t", replication_factor=2)
        assert leader.host.halted is not None and "has failed" in leader.host.halted
        assert cluster.leader_of_quorum() is not leader

    live(story)


def test_a_leader_whose_metadata_log_rotted_ends_and_another_leads() -> None:
    """It finds that when somebody asks for what rotted."""

    async def story(cluster: Cluster) -> None:
        await cluster.settled()
        leader = cluster.leader_of_quorum()
        assert leader is not None and leader.broker is not None
        late = next(node for node in cluster.nodes.values() if node is not leader)
        assert late.broker is not None
        end_offset = late.broker.quorum.log_end_offset
        late.kill()
        for number in range(3):
            await cluster.create(f"t{number}", replication_factor=2)
        disk, path = leader.host.disk, f"{leader.broker.quorum.opened.log.directory}/{0:020}.log"
        position = next(
            position
            for position, header in iterate_batches(bytes(disk.peek_durable(path)))
            if header.base_offset >= end_offset
        )
        disk.flip_bit(path, position + LENGTH_BYTES[0])
        leader.host.may_halt = True
        late.boot()
        await cluster.until(lambda: leader.host.halted is not None, "the leader ends")
        assert "is damaged" in str(leader.host.halted)
        await cluster.create("later", replication_factor=2)

    live(story)


def test_a_snapshot_that_is_gone_is_not_found() -> None:
    """It was given up between the question and the read: whoever asked begins anew, with a later one."""

    async def story(cluster: Cluster) -> None:
        await cluster.settled()
        leader = cluster.leader_of_quorum()
        assert leader is not None and leader.broker is not None
        late = next(node for node in cluster.nodes.values() if node is not leader)
        late.kill()
        for number in range(30):
            await cluster.create(f"t{number}", replication_factor=2)
        await asyncio.sleep(5)
        files = leader.broker.quorum.opened.files
        read, reads = files.read, 0

        def gone(*args: Any) -> bytes:
            nonlocal reads
            reads += 1
            if reads == 1:
                raise FileNotFoundError(errno.ENOENT, "unlinked meanwhile")
            return read(*args)

        files.read = gone  # type: ignore[method-assign, assignment]
        late.boot()
        await cluster.until(lambda: late.broker is not None and not late.broker.readiness.not_ready(), "the late one")
        assert reads > 1 and leader.is_up

    small: dict[str, Any] = {
        "metadata.log.max.record.bytes.between.snapshots": "600",
        "metadata.max.retention.bytes": "4000",
    }
    live(story, **small)
