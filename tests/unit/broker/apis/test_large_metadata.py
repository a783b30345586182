"""Answers to Metadata that are put together beside the loop: the same bytes, once for a crowd, never of the past."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from moldau.broker.apis.large import KEPT_MAX, Client, FindVisible, LargeMetadata, MetadataQuery
from moldau.broker.apis.needs import NOT_ASKED, TOPIC_OPERATIONS
from moldau.broker.apis.topics import metadata
from moldau.kraft.image.metadata_image import MetadataImage
from moldau.kraft.image.topics import Topic, TopicsImage
from moldau.protocol.errors import ErrorCode
from moldau.protocol.frames import request_frame, size_prefixed
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from moldau.security.access import AclOperation
from moldau.security.principal import Principal
from tests.support import node as support
from tests.support.node import Closed, Node, serve_and


async def all_topics(client: support.Client, version: int = 12) -> MetadataResponse:
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
        wishes = [MetadataRequestTopic(name=f"t{index}") for index in range(2_001)]
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


@pytest.mark.parametrize("fails", ["answer", "encode"])
def test_a_response_that_cannot_be_made_ends_its_request_alone(
    fails: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An exception of a task stops the node."""

    def answer(asked: MetadataQuery) -> tuple[MetadataResponse, list[str]]:
        if fails == "answer":
            raise ZeroDivisionError
        return MetadataResponse(controller_id=1 << 40), []

    async def story(node: Node) -> None:
        client, other = await node.connect(), await node.connect()
        await other.create("a", 5)
        with monkeypatch.context() as patch:
            patch.setattr(metadata, "LARGE", 3)
            patch.setattr(metadata, "answer", answer)
            with pytest.raises(Closed):
                await asyncio.wait_for(all_topics(client), 1)
        assert len((await all_topics(other)).topics) == 1

    serve_and(story)
    assert "a handler failed; it had a request of" in caplog.text


def test_a_name_that_is_not_utf8_does_not_stop_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """The response repeats it, as three times as many bytes."""

    async def story(node: Node) -> None:
        client, other = await node.connect(), await node.connect()
        await other.create("a", 5)
        monkeypatch.setattr(metadata, "LARGE", 3)
        wishes = [MetadataRequestTopic(name="a"), MetadataRequestTopic(name="\x7f" * 11_000)]
        frame = size_prefixed(request_frame(MetadataRequest(topics=wishes), 1, 1, b"c"))
        client.writer.write(frame.replace(b"\x7f", b"\xff"))
        assert await client.reader.read(1) == b""
        assert len((await all_topics(other)).topics) == 1

    serve_and(story)


def question(image: MetadataImage, requested: list[MetadataRequestTopic] | None = None) -> MetadataQuery:
    return MetadataQuery(image, "PLAINTEXT", (), 1, "cluster", requested, NOT_ASKED, NOT_ASKED, 0)


def result_of(steps: FindVisible) -> tuple[MetadataQuery, int]:
    """The result of a generator, and the number of its steps."""
    count = 0
    while True:
        try:
            next(steps)
            count += 1
        except StopIteration as end:
            return end.value, count


def test_the_topics_that_a_client_may_see_are_found_in_steps() -> None:
    topics = TopicsImage.from_topics(Topic(name, bytes([number]) * 16, {}) for number, name in enumerate("abcd", 1))
    allowed = {(AclOperation.DESCRIBE, "a"), (AclOperation.DESCRIBE, "c"), (AclOperation.READ, "c")}
    access: Any = SimpleNamespace(
        is_unrestricted=False, allows=lambda operation, kind, name, **_: (operation, name) in allowed
    )
    asked = question(MetadataImage(topics=topics))
    seen, steps = result_of(metadata.all_visible(access, asked))
    assert sorted(each.name or "" for each in seen.requested or ()) == ["a", "c"] and steps == 4
    assert seen.operations is None
    seen, _ = result_of(metadata.all_visible(access, asked._replace(topic_operations=TOPIC_OPERATIONS)))
    describes, reads = 1 << AclOperation.DESCRIBE, 1 << AclOperation.READ
    assert seen.operations == {bytes([1]) * 16: describes, bytes([3]) * 16: describes | reads}


def test_what_a_client_may_see_of_all_topics_is_found_once_until_topics_or_acls_change() -> None:
    large = LargeMetadata(cast("Any", None), cast("Any", None), cast("Any", None))
    image, found = MetadataImage(), []

    def see(client: Client, asked: MetadataQuery) -> MetadataQuery:
        def allowed() -> FindVisible:
            found.append(client)
            yield
            return asked._replace(requested=[MetadataRequestTopic(name=client.principal.name)])

        return result_of(large.visible(client, asked, allowed()))[0]

    alice = Client(Principal("User", "alice"), "192.0.2.1", 7)
    others = [
        alice._replace(host="192.0.2.2"),
        alice._replace(stamp=8),
        alice._replace(principal=Principal("User", "b")),
    ]
    first = see(alice, question(image))
    again = see(alice, question(image)._replace(controller_id=2))
    assert found == [alice] and again.requested is first.requested and again.controller_id == 2
    for each in others:
        see(each, question(image))
    assert found == [alice, *others]
    see(alice, question(MetadataImage(topics=TopicsImage())))
    assert found == [alice, *others, alice]
    for stamp in range(KEPT_MAX):
        see(alice._replace(stamp=100 + stamp), question(image))
    see(alice, question(image))
    assert len(found) == 5 + KEPT_MAX + 1 and len(large._visible) == KEPT_MAX


def test_an_answer_to_other_topics_or_in_another_version_is_not_taken_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        for name in ("a", "b"):
            await client.create(name, 5)
        monkeypatch.setattr(metadata, "LARGE", 3)
        large = node.broker.services.large_metadata

        async def names(*wanted: str) -> list[str | None]:
            topics = [MetadataRequestTopic(name=name) for name in wanted] or None
            reply = await client.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 12)
            return sorted(topic.name or "" for topic in reply.topics)

        for _ in range(2):
            assert await names() == ["a", "b"] and await names("a") == ["a"] and await names("b") == ["b"]
        assert large.made_count == 3
        await all_topics(client, 11)
        assert large.made_count == 4

    serve_and(story)
