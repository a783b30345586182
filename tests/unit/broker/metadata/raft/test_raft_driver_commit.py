"""A node that has fetched much metadata publishes it in several iterations of its event loop."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

from moldau.broker.metadata.publisher import RECORDS_OF_STEP
from moldau.broker.metadata.raft.controller_terms import ControllerTerms
from moldau.broker.metadata.raft.log_writer import MetadataLogWriter
from moldau.broker.metadata.raft.metadata_snapshots import MetadataSnapshots
from moldau.broker.metadata.raft.quorum_peers import QuorumPeers
from moldau.broker.metadata.raft.raft_driver import CatchUpWait, EventFeed, RaftDriver
from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.tasks import Tasks
from moldau.kraft.raft import events
from moldau.kraft.raft.raft import Raft
from tests.unit.broker.metadata.test_publisher import BATCHES, RECORDS, FollowersLog

END = BATCHES * RECORDS


class Story:
    """A driver whose machine commits what it is told to, over the metadata log of a follower."""

    def __init__(self) -> None:
        self.follower = FollowersLog()
        self.follower.append(1, BATCHES)
        self.failures: list[OSError] = []
        self.snapshots = 0
        self.catch_up = CatchUpWait(asyncio.get_running_loop())
        self.feed = EventFeed()
        self.driver = RaftDriver(
            cast("Environment", SimpleNamespace(monotonic_ms=lambda: 0, wall_ms=lambda: 0)),
            asyncio.get_running_loop(),
            cast("Tasks", None),
            cast("Raft", SimpleNamespace(step=lambda event, *now: [event], next_deadline_ms=lambda: None)),
            self.follower.log,
            self.follower.committed,
            cast("MetadataLogWriter", SimpleNamespace(on_disk_failed=self.failures.append)),
            cast("MetadataSnapshots", SimpleNamespace(write_if_due=self.note_snapshot)),
            cast("ControllerTerms", SimpleNamespace(active=None)),
            cast("QuorumPeers", None),
            self.catch_up,
            self.feed,
        )

    def note_snapshot(self) -> None:
        self.snapshots += 1

    def commit(self, high_watermark: int) -> None:
        self.feed.feed(cast("events.Event", events.Commit(high_watermark)))


def test_other_work_of_the_loop_runs_between_the_steps() -> None:
    async def story() -> None:
        it = Story()
        it.commit(END)
        seen = []
        while not it.catch_up.is_over:
            seen.append(len(it.follower.published))
            assert it.snapshots == 0, "a snapshot before everything is published"
            await asyncio.sleep(0)
        assert len(seen) > BATCHES // 10 and seen == sorted(set(seen))
        assert it.follower.publisher.image.next_producer_id == BATCHES
        assert it.snapshots == 1

    asyncio.run(story())


def test_two_commits_have_one_next_step() -> None:
    async def story() -> None:
        it = Story()
        it.commit(END - RECORDS)
        it.commit(END)
        await asyncio.sleep(0)
        before = len(it.follower.published)
        await asyncio.sleep(0)
        assert len(it.follower.published) - before <= RECORDS_OF_STEP // RECORDS
        while not it.catch_up.is_over:
            await asyncio.sleep(0)
        assert it.snapshots == 1

    asyncio.run(story())


def test_a_disk_that_fails_in_a_later_step_halts_the_node() -> None:
    async def story() -> None:
        it = Story()
        it.commit(END)

        def fail(*change: object) -> None:
            raise OSError("the disk is gone")

        it.follower.publisher.subscribe(fail)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [str(failure) for failure in it.failures] == ["the disk is gone"]

    asyncio.run(story())
