"""Answers to Metadata that are put together beside the loop: the same bytes, once for a crowd, never of the past."""

from __future__ import annotations

import asyncio

import pytest

from moldau.broker.requests.handlers import metadata
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.support.node import Client, Node, serve_and


async def all_topics(client: Client, version: int = 12) -> MetadataResponse:
    reply: MetadataResponse = await client.ask(MetadataRequest(topics=None), version)
    return reply


def test_it_is_the_same_answer_in_every_version(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("a", 5)
        for version in range(1, 14):
            here = await all_topics(client, version)
            with monkeypatch.context() as patch:
                patch.setattr(metadata, "LARGE", 3)
                assert await all_topics(client, version) == here
        assert node.broker.services.large_metadata.made_count == 13

    serve_and(story)


def test_a_crowd_has_one_answer_until_the_cluster_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(node: Node) -> None:
        crowd = [await node.connect() for _ in range(5)]
        await crowd[0].create("a", 5)
        monkeypatch.setattr(metadata, "LARGE", 3)
        replies = await asyncio.gather(*(all_topics(client) for client in crowd))
        assert all(reply == replies[0] for reply in replies) and node.broker.services.large_metadata.made_count == 1
        await crowd[0].create("b")
        assert sorted(topic.name or "" for topic in (await all_topics(crowd[1])).topics) == ["a", "b"]
        assert node.broker.services.large_metadata.made_count == 2

    serve_and(story)


def test_many_names_that_are_not_there() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        wishes = [MetadataRequestTopic(name=f"t{index}") for index in range(metadata.LARGE + 1)]
        reply = await client.ask(MetadataRequest(topics=wishes, allow_auto_topic_creation=False), 12)
        assert [topic.name for topic in reply.topics] == [wish.name for wish in wishes]
        assert {topic.error_code for topic in reply.topics} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert node.broker.services.long_requests.handled_count == 1

    serve_and(story)


def test_what_is_missing_is_created_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        monkeypatch.setattr(metadata, "LARGE", 1)
        wishes = [MetadataRequestTopic(name=name) for name in ("a", "b")]
        await client.ask(MetadataRequest(topics=wishes, allow_auto_topic_creation=True), 12)
        while node.broker.image.topics.by_name("b") is None:
            await asyncio.sleep(0.1)
        assert node.broker.image.topics.by_name("a") is not None

    serve_and(story)


def test_nobody_works_for_a_client_that_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("a", 5)
        monkeypatch.setattr(metadata, "LARGE", 3)
        large = node.broker.services.large_metadata
        await large._turn.acquire()
        waiting = asyncio.ensure_future(all_topics(client))
        await asyncio.sleep(0.1)
        waiting.cancel()
        client.close()
        await asyncio.sleep(0.1)
        large._turn.release()
        assert len((await all_topics(await node.connect())).topics) == 1 and large.made_count == 1

    serve_and(story)
