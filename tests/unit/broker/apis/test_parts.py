"""Long requests: cut into parts, joined again, in turns with other work."""

from __future__ import annotations

import asyncio
import inspect
import itertools
from collections.abc import Callable, Coroutine
from itertools import pairwise
from typing import Any, Final, cast

import pytest

from bench.frames import request_frame
from moldau.broker.apis import parts
from moldau.broker.apis.api import Api, list_paths
from moldau.broker.apis.groups import offset_fetch
from moldau.broker.apis.needs import guarded_handler
from moldau.broker.apis.parts import Answering, ListPath, LongRequest, LongRequests, PartRules, RequestPart, pieces
from moldau.broker.network.memory import RequestMemory
from moldau.broker.network.route import ListenerRole, RequestContext, Route, RouteBinding
from moldau.broker.runtime.pending import Pending
from moldau.protocol.compiler import encode
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from moldau.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from moldau.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from moldau.replication.fetch_session import SESSION_PARTITIONS_MAX
from moldau.security.access import Access, AclOperation, ResourceKind, Unrestricted
from moldau.security.acl.authorizer import AclAccess, AuditedDecisions, Authorizer, AuthorizerSettings
from moldau.security.acl.bindings import AclBinding, PatternType, PermissionType
from moldau.security.principal import Principal
from tests.limits.lists import LongList, long_lists, long_request
from tests.support.apis import APIS
from tests.support.node import Node, batch, serve_and

WHOLE = {"AlterClientQuotas", "CreateTopics", "Fetch", "Produce"}
"""APIs whose parts have tests of their own, or whose elements need more than names."""
ROWS: Final = {row.name: row for row in APIS}


def row_of(each: LongList) -> Api[Any]:
    return ROWS[each.name.partition(".")[0]]


def parts_of(api: str) -> PartRules:
    plan = ROWS[api].parts
    assert plan is not None
    return plan


CUT = [
    each
    for each in long_lists()
    if (row := row_of(each)).parts is not None and row.name not in WHOLE and ".".join(each.path) not in row.bounds
]


def topic(name: str, *indexes: int) -> ListOffsetsTopic:
    return ListOffsetsTopic(
        name=name, partitions=[ListOffsetsPartition(partition_index=index, timestamp=-1) for index in indexes]
    )


def counted(elements: list[Any]) -> list[list[tuple[str, int]]]:
    cut = pieces(elements, ["partitions"], 4)
    return [[(each.name, len(each.partitions)) for each in cast("list[Any]", piece.elements)] for piece in cut]


def test_small_elements_share_a_part_and_a_large_one_is_cut() -> None:
    elements = [topic("a", 1), topic("b", 1, 2), topic("c", *range(9)), topic("d"), topic("e", 1, 2, 3)]
    assert counted(elements) == [[("a", 1), ("b", 2)], [("c", 4)], [("c", 4)], [("c", 1)], [("d", 0), ("e", 3)]]


def test_pieces_of_pieces_continue_both() -> None:
    deep = OffsetFetchRequestTopics(name="t", partition_indexes=list(range(5)))
    group = OffsetFetchRequestGroup(group_id="g", topics=[deep, OffsetFetchRequestTopics(name="u")])
    cut = list(pieces([group], ["topics", "partition_indexes"], 2, consumes=False))
    assert [piece.continues for piece in cut] == [False, True, True, True]
    topics = [cast("Any", piece.elements[0]).topics for piece in cut]
    assert [[(each.name, each.partition_indexes) for each in some] for some in topics] == [
        [("t", [0, 1])],
        [("t", [2, 3])],
        [("t", [4])],
        [("u", [])],
    ]
    assert group.topics == [deep, OffsetFetchRequestTopics(name="u")], "the request itself stays as it is"
    assert len([*pieces([group], ["topics", "partition_indexes"], 2)]) == 4
    assert (group.topics, deep.partition_indexes) == ([], []), "what is cut is freed piece by piece"


def test_only_a_request_with_more_elements_than_a_part_is_long() -> None:
    plan = PartRules((ListPath("topics.partitions", "topics.partitions"),), size=3)
    assert not plan.is_long(ListOffsetsRequest(replica_id=-1, topics=[topic("a", 1, 2), topic("b", 1)]))
    assert plan.is_long(ListOffsetsRequest(replica_id=-1, topics=[topic("a", 1, 2), topic("b", 1, 2)]))
    assert plan.is_long(ListOffsetsRequest(replica_id=-1, topics=[topic("a"), topic("b"), topic("c"), topic("d")]))


def test_repeated_elements_are_left_out_where_results_are_large() -> None:
    names = ["a", "b", "a", "c", "b"]
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
    cut = [each for each in parts_of("Metadata").parts_of(request) if isinstance(each, RequestPart)]
    assert [each.name for part in cut for each in cast("MetadataRequest", part.request).topics or ()] == ["a", "b", "c"]


@pytest.mark.parametrize("each", CUT, ids=lambda each: each.name)
def test_the_joined_response_is_that_to_the_whole_request(each: LongList, monkeypatch: pytest.MonkeyPatch) -> None:
    """For each list, of names that do not exist."""
    row = next(row for row in APIS if row.request is each.request)
    assert row.broker is not None

    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("a")
        if each.request is FindCoordinatorRequest:  # It creates the topic of the coordinator, and the answer changes.
            await client.ask(long_request(each, 100), each.version)
            await asyncio.sleep(1)
        handled: list[object] = []
        for role in node.broker.listeners:
            route = role.routes.get(row.key)
            if route is not None and role.name == "PLAINTEXT":
                context = RequestContext(cast("Any", next(iter(role.connections))), route, each.version, 0, None)
                request = long_request(each, 100)
                assert row.broker is not None
                handled.append(await answer_of(row.broker(node.broker.services, context, request)))
        joined = await client.ask(long_request(each, 100), each.version)
        assert len(handled) == 1
        assert encode(joined, each.version) == encode(handled[0], each.version)

    serve_and(story, transaction_state_log_replication_factor=1, transaction_state_log_num_partitions=1)


async def answer_of(response: object) -> object:
    if not isinstance(response, Pending):
        return response
    done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    cast("Pending[object]", response).listen(done.set_result)
    return await done


def keys(count: int) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(coordinator_keys=[f"key-{number}" for number in range(count)])


class SlowClock:
    """A clock by which each part takes a whole slice."""

    def __init__(self) -> None:
        self.now_ns = 0

    def precise_ns(self) -> int:
        self.now_ns += parts.SLICE_NS
        return self.now_ns


MEMORY: Final = RequestMemory(None, cast("Any", None))
"""Request memory without a limit, for which no connection waits."""


class StillConnection:
    def __init__(self) -> None:
        self.access = Unrestricted()
        self.held = 0

    def hold(self) -> None:
        self.held += 1

    async def hold_during(self, work: Coroutine[object, object, None]) -> None:
        await work


ROUTE = Route(10, "FindCoordinator", 0, 6, lambda: RouteBinding(FindCoordinatorRequest, FindCoordinatorResponse, print))


class CountedRequests(Unrestricted):
    """Counts the lines of an audit log."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = self.ended = 0

    def begin_request(self) -> bool:
        self.begun += 1
        return True

    def end_request(self) -> None:
        self.ended += 1


def test_others_have_their_turn_while_a_long_answer_is_made() -> None:
    """Two of them have a slice each in turn; the response is encoded in an executor thread."""
    further = 20
    count = parts.ANSWERED_AT_ONCE + further * parts.STEP
    order: list[int] = []

    def answering(number: int, count: int = count) -> Answering:
        for _ in range(count):
            order.append(number)
            yield
        return f"answer {number}"

    async def story() -> None:
        loop = asyncio.get_running_loop()
        tasks: list[asyncio.Task[None]] = []
        turns = LongRequests(
            cast("Any", SlowClock()),
            loop,
            lambda work, name="": tasks.append(loop.create_task(cast("Any", work))),
            MEMORY,
        )
        replies: list[object] = []
        connections = [StillConnection() for _ in range(3)]
        for number, connection in enumerate(connections[:2]):
            connection.access = CountedRequests()
            context = RequestContext(cast("Any", connection), ROUTE, 6, 0, None)
            reply = turns.answer(context, answering(number))
            assert context.is_long and connection.held == 1
            cast("Pending[object]", reply).listen(replies.append)
        context = RequestContext(cast("Any", connections[2]), ROUTE, 6, 0, None)
        abandoned = answering(2)
        cast("Pending[object]", turns.answer(context, abandoned)).abandon()
        await asyncio.gather(*tasks)
        assert replies == ["answer 0", "answer 1"]
        assert inspect.getgeneratorstate(abandoned) == inspect.GEN_CLOSED
        assert turns.answer(context, answering(3, 7)) == "answer 3"
        for connection in connections[:2]:
            access = cast("CountedRequests", connection.access)
            assert access.ended == 1, "one line of the audit log for what is decided in slices"

    asyncio.run(story())
    later = order[3 * parts.ANSWERED_AT_ONCE : -7]
    slices = [number for number, _ in itertools.groupby(later)]
    assert len(later) == 2 * further * parts.STEP
    assert len(slices) == 2 * further, "each in turn"


TOPICS_OF_ALICE: Final = AclBinding(
    ResourceKind.TOPIC, "t", PatternType.PREFIXED, "User:alice", "*", AclOperation.DESCRIBE, PermissionType.ALLOW
)


class Audit:
    """Keeps the entries of an audit log: (whether allowed, number of decisions)."""

    def __init__(self) -> None:
        self.entries: list[tuple[bool, int]] = []

    def log_decisions(self, access: AclAccess, decisions: AuditedDecisions) -> None:
        self.entries.append((decisions.is_allowed, decisions.count))


@pytest.mark.parametrize("count", [1, parts.ANSWERED_AT_ONCE - 1, parts.ANSWERED_AT_ONCE, 30 * parts.STEP])
def test_the_decisions_of_all_slices_are_one_entry_for_each_outcome(count: int) -> None:
    """The permission goes while the answer is made: what was decided before keeps its outcome, and each is counted."""
    allowed_count, audit = count // 2, Audit()
    authorizer = Authorizer(AuthorizerSettings(audits_allowed=True), audit)
    authorizer.on_metadata_loaded()
    authorizer.apply_changes({b"1": TOPICS_OF_ALICE})

    turns, found = cast("LongRequests", None), list[bool]()

    def asking(services: object, context: RequestContext, request: object, answer: object) -> object:
        return turns.answer(context, answering(context.access))

    def answering(access: Access) -> Answering:
        for number in range(count):
            if number == allowed_count:
                authorizer.apply_changes({b"1": None})
            yield
            found.append(access.allows(AclOperation.DESCRIBE, ResourceKind.TOPIC, f"t{number}"))
        return "answer"

    async def story() -> None:
        nonlocal turns
        loop = asyncio.get_running_loop()
        tasks: list[asyncio.Task[None]] = []
        turns = LongRequests(
            cast("Any", SlowClock()),
            loop,
            lambda work, name="": tasks.append(loop.create_task(cast("Any", work))),
            MEMORY,
        )
        connection: Any = StillConnection()
        connection.access = authorizer.access(Principal("User", "alice"), "10.0.0.1")
        context = RequestContext(connection, ROUTE, 6, 0, None)
        guarded_handler(asking, ListenerRole.BROKER, cast("Any", None), cast("Any", None))(context, object())
        await asyncio.gather(*tasks)
        assert connection.access.begin_request(), "the request has ended"

    asyncio.run(story())
    assert found == [number < allowed_count for number in range(count)]
    wanted = [(True, allowed_count), (False, count - allowed_count)]
    assert sorted(audit.entries, reverse=True) == [each for each in wanted if each[1]]


def test_a_slice_of_a_long_answer_leaves_room_for_a_collection_of_garbage() -> None:
    """A clock by which each look takes a quarter of its slice."""
    order: list[str] = []

    class Clock:
        now_ns = 0

        def precise_ns(self) -> int:
            self.now_ns += parts.ANSWER_SLICE_NS // 4
            return self.now_ns

    def answering() -> Answering:
        for _ in range(parts.ANSWERED_AT_ONCE + 40 * parts.STEP):
            order.append("element")
            yield
        return Pending()

    async def story() -> None:
        loop = asyncio.get_running_loop()
        tasks: list[asyncio.Task[None]] = []
        turns = LongRequests(
            cast("Any", Clock()),
            loop,
            lambda work, name="": tasks.append(loop.create_task(cast("Any", work))),
            MEMORY,
        )

        def tick() -> None:
            order.append("tick")
            if not tasks[0].done():
                loop.call_soon(tick)

        turns.answer(RequestContext(cast("Any", StillConnection()), ROUTE, 6, 0, None), answering())
        loop.call_soon(tick)
        await asyncio.gather(*tasks)

    asyncio.run(story())
    later = order[parts.ANSWERED_AT_ONCE :]
    slices = [len([*group]) for name, group in itertools.groupby(later) if name == "element"]
    assert sum(slices) == 40 * parts.STEP and max(slices) == 4 * parts.STEP


def test_an_answer_that_is_not_there_yet_completes_the_reply_later() -> None:
    inner: Pending[object] = Pending()

    def answering() -> Answering:
        for _ in range(2 * parts.ANSWERED_AT_ONCE):
            yield
        return inner

    async def story() -> list[object]:
        works: list[Coroutine[object, object, None]] = []
        turns = LongRequests(
            cast("Any", SlowClock()),
            asyncio.get_running_loop(),
            lambda work, name="": works.append(cast("Any", work)),
            MEMORY,
        )
        reply = turns.answer(RequestContext(cast("Any", StillConnection()), ROUTE, 6, 0, None), answering())
        replies: list[object] = []
        cast("Pending[object]", reply).listen(replies.append)
        await works[0]
        assert replies == []
        inner.complete("answer")
        return replies

    assert asyncio.run(story()) == ["answer"]


def test_a_client_that_leaves_abandons_the_answer_that_is_not_there_yet() -> None:
    abandoned: list[str] = []
    inner: Pending[object] = Pending(lambda: abandoned.append("inner"))

    def answering() -> Answering:
        for _ in range(2 * parts.ANSWERED_AT_ONCE):
            yield
        return inner

    async def story() -> None:
        works: list[Coroutine[object, object, None]] = []
        turns = LongRequests(
            cast("Any", SlowClock()),
            asyncio.get_running_loop(),
            lambda work, name="": works.append(cast("Any", work)),
            MEMORY,
        )
        reply = turns.answer(RequestContext(cast("Any", StillConnection()), ROUTE, 6, 0, None), answering())
        await works[0]
        cast("Pending[object]", reply).abandon()

    asyncio.run(story())
    assert abandoned == ["inner"]


def test_an_answer_that_fails_in_a_later_slice_fails_on_its_connection_alone() -> None:
    """As one that fails at once: it is no task of its own, whose failure would stop the broker."""

    def answering() -> Answering:
        for _ in range(parts.ANSWERED_AT_ONCE):
            yield
        raise KeyError

    async def story() -> None:
        works: list[Coroutine[object, object, None]] = []
        turns = LongRequests(
            cast("Any", SlowClock()),
            asyncio.get_running_loop(),
            lambda work, name="": works.append(cast("Any", work)),
            MEMORY,
        )
        connection = StillConnection()
        turns.answer(RequestContext(cast("Any", connection), ROUTE, 6, 0, None), answering())
        (work,) = works
        with pytest.raises(KeyError):
            await work
        assert work.__qualname__ == "StillConnection.hold_during"  # type: ignore[attr-defined]

    asyncio.run(story())


def test_others_have_their_turn_after_each_slice() -> None:
    """Of two long requests one has a slice in an iteration of the loop."""
    order: list[str] = []

    async def story() -> None:
        loop = asyncio.get_running_loop()
        tasks: list[asyncio.Task[None]] = []
        turns = LongRequests(
            cast("Any", SlowClock()),
            loop,
            lambda work, name="": tasks.append(loop.create_task(cast("Any", work))),
            MEMORY,
        )
        replies: list[object] = []

        def answer(context: RequestContext, request: object) -> FindCoordinatorResponse:
            order.append("part")
            assert isinstance(request, FindCoordinatorRequest)
            return FindCoordinatorResponse(coordinators=[refused(key) for key in request.coordinator_keys])

        def tick() -> None:
            order.append("tick")
            if len(replies) < 2:
                loop.call_soon(tick)

        for _ in range(2):
            context = RequestContext(cast("Any", StillConnection()), ROUTE, 6, 0, None)
            reply = LongRequest(parts_of("FindCoordinator"), turns, context, keys(320), answer).begin()
            cast("Pending[object]", reply).listen(replies.append)
        loop.call_soon(tick)
        while len(replies) < 2:
            await asyncio.sleep(0)
        assert all(
            [each.key for each in cast("FindCoordinatorResponse", reply).coordinators] == keys(320).coordinator_keys
            for reply in replies
        )

    asyncio.run(story())
    assert order.count("part") == 20
    assert order[:3] == ["part", "part", "tick"], "the first slice of each is handled at once"
    assert not any(pair == ("part", "part") for pair in pairwise(order[2:]))


def in_one_slice(api: str, request: object, answer: Callable[[Any], object]) -> tuple[object, int]:
    """The response to a long request that needs no second slice, and the number of parts that were asked."""
    asked: list[object] = []

    def count(context: RequestContext, part: object) -> object:
        asked.append(part)
        return answer(part)

    async def story() -> object:
        loop = asyncio.get_running_loop()
        tasks: list[asyncio.Task[None]] = []
        turns = LongRequests(
            cast("Any", StoppedClock()),
            loop,
            lambda work, name="": tasks.append(loop.create_task(cast("Any", work))),
            MEMORY,
        )
        context = RequestContext(cast("Any", StillConnection()), ROUTE, 6, 0, None)
        response = LongRequest(parts_of(api), turns, context, request, count).begin()
        await asyncio.gather(*tasks)
        return await answer_of(response)

    return asyncio.run(story()), len(asked)


class StoppedClock:
    def precise_ns(self) -> int:
        return 0


def test_of_a_request_that_is_refused_as_a_whole_one_part_is_asked() -> None:
    request = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=f"m{number}") for number in range(999)])
    refusal = LeaveGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert in_one_slice("LeaveGroup", request, lambda part: refusal) == (refusal, 1)
    assert request.members == [], "the others are freed in slices"


def test_a_part_that_refuses_the_request_replaces_the_results_of_all_others() -> None:
    """The controller may lose its leadership between two parts, and win it again."""
    count = 3 * parts_of("LeaveGroup").size
    names = [f"m{number}" for number in range(count)]
    request = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=name) for name in names])
    refusal = LeaveGroupResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    waiting: list[Pending[object]] = []

    def answer(part: LeaveGroupRequest) -> Pending[object]:
        reply: Pending[object] = Pending()
        waiting.append(reply)
        if len(waiting) == 3:
            for index, each in enumerate(waiting):
                members = [MemberResponse(member_id=f"m{index}")]
                each.complete(refusal if index == 1 else LeaveGroupResponse(members=members))
        return reply

    assert in_one_slice("LeaveGroup", request, answer) == (refusal, 3)
    assert refusal.members == []


def test_of_an_element_that_is_refused_as_a_whole_one_piece_is_asked() -> None:
    def group(name: str) -> OffsetFetchRequestGroup:
        topic = OffsetFetchRequestTopics(name="t", partition_indexes=list(range(100)))
        return OffsetFetchRequestGroup(group_id=name, topics=[topic])

    def answer(part: OffsetFetchRequest) -> OffsetFetchResponse:
        (asked,) = part.groups
        error = ErrorCode.NONE if asked.group_id == "b" else ErrorCode.GROUP_AUTHORIZATION_FAILED
        topics = [] if error else [offset_fetch.no_offsets(each, error) for each in asked.topics or ()]
        return OffsetFetchResponse(
            groups=[OffsetFetchResponseGroup(group_id=asked.group_id, error_code=error, topics=topics)]
        )

    response, asked = in_one_slice("OffsetFetch", OffsetFetchRequest(groups=[*map(group, "abc")]), answer)
    assert isinstance(response, OffsetFetchResponse)
    told = [
        (each.group_id, each.error_code, sum(len(topic.partitions) for topic in each.topics))
        for each in response.groups
    ]
    assert told == [("a", 30, 0), ("b", 0, 100), ("c", 30, 0)]
    assert asked == 1 + -(-100 // parts_of("OffsetFetch").size) + 1


def refused(key: str) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1)


def test_the_next_request_of_the_connection_waits_for_the_last_part() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        client.send(keys(5_000), 6)
        client.send(keys(1), 6)
        assert len((await client.reply()).coordinators) == 5_000
        assert len((await client.reply()).coordinators) == 1

    serve_and(story)


def test_a_client_that_leaves_ends_its_long_request() -> None:
    async def story(node: Node) -> None:
        leaving, other = await node.connect(), await node.connect()
        leaving.send(keys(50_000), 6)
        await asyncio.sleep(0.03)
        leaving.close()
        await other.ask(keys(1_000), 6)
        assert not node.broker.services.long_requests._waiting

    serve_and(story)


def test_a_malformed_long_request_ends_its_connection() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        frame = bytearray(request_frame(keys(50_000), 6))
        frame[frame.rindex(b"key-49999") - 1] = 200  # the length of the last key
        client.writer.write(bytes(frame))
        assert await client.reader.read(1) == b""

    serve_and(story)


# Fetch


def partitions(count: int, name: str = "a") -> list[FetchTopic]:
    wishes = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20) for index in range(count)]
    return [FetchTopic(topic=name, partitions=wishes)]


def test_a_long_fetch_has_no_session_and_the_records() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("a", 3)
        await client.produce("a", batch("v"), partition=2)
        fetch = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=1 << 20, session_epoch=0)
        fetch.topics = partitions(SESSION_PARTITIONS_MAX + 1)
        reply = await client.ask(fetch, 12)
        assert reply.session_id == 0
        (topic,) = reply.responses
        assert [each.partition_index for each in topic.partitions] == list(range(SESSION_PARTITIONS_MAX + 1))
        assert [bool(each.records) for each in topic.partitions[:3]] == [False, False, True]
        fetch.topics = partitions(SESSION_PARTITIONS_MAX)
        assert (await client.ask(fetch, 12)).session_id != 0

    serve_and(story)


def test_a_long_fetch_looks_again_when_its_wait_is_over() -> None:
    async def story(node: Node) -> None:
        client, producer = await node.connect(), await node.connect()
        await client.create("a", SESSION_PARTITIONS_MAX + 1)
        fetch = FetchRequest(
            max_wait_ms=500, min_bytes=1, max_bytes=1 << 20, topics=partitions(SESSION_PARTITIONS_MAX + 1)
        )
        waiting = asyncio.ensure_future(client.ask(fetch, 11))
        await asyncio.sleep(0.2)
        await producer.produce("a", batch("v"))
        reply = await waiting
        assert sum(len(each.partitions) for each in reply.responses) == SESSION_PARTITIONS_MAX + 1
        assert reply.responses[0].partitions[0].records

    serve_and(story)


def test_topics_without_partitions_are_no_parts_of_a_long_fetch() -> None:
    def parts_asked(topics: list[FetchTopic]) -> list[list[str]]:
        cut = parts_of("Fetch").parts_of(FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics))
        return [
            [each.topic for each in cast("FetchRequest", part.request).topics]
            for part in cut
            if isinstance(part, RequestPart)
        ]

    bare = [FetchTopic(topic=f"t{number}") for number in range(10_000)]
    assert parts_asked(bare) == [[]], "one part, for the errors of the whole request"
    whole = [FetchTopic(topic="a", partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)])]
    cut = parts_of("Fetch").parts_of(FetchRequest(max_wait_ms=0, min_bytes=0, topics=bare + whole + bare))
    part = next(each for each in cut if each is not None)
    assert cast("FetchRequest", cast("RequestPart", part).request).topics == whole


def test_a_session_does_not_grow_past_its_limit() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("a")
        fetch = FetchRequest(max_wait_ms=0, min_bytes=0, session_epoch=0, topics=partitions(SESSION_PARTITIONS_MAX))
        session_id = (await client.ask(fetch, 12)).session_id
        more = FetchRequest(
            max_wait_ms=0, min_bytes=0, session_id=session_id, session_epoch=1, topics=partitions(1, "b")
        )
        assert (await client.ask(more, 12)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        many = FetchRequest(max_wait_ms=0, min_bytes=0, session_id=5, session_epoch=1)
        many.topics = partitions(SESSION_PARTITIONS_MAX + 1, "b")
        assert (await client.ask(many, 12)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    serve_and(story)


# Lists that are not cut


@pytest.mark.parametrize(
    "each",
    [each for each in long_lists() if ".".join(each.path) in row_of(each).bounds],
    ids=lambda each: each.name,
)
def test_a_list_beyond_its_bound_is_refused(each: LongList) -> None:
    bound = row_of(each).bounds[".".join(each.path)]

    async def story(node: Node) -> None:
        client = await node.connect()
        reply = await client.ask(long_request(each, bound + 1), each.version)
        assert str(int(ErrorCode.INVALID_REQUEST)) in repr(reply)

    serve_and(story)


# The table


def test_every_list_of_every_request_is_cut_bounded_or_short() -> None:
    lists = [(api, path) for api in APIS for path in list_paths(api.request)]
    assert not [f"{api.name}.{path}" for api, path in lists if not api.treatment(path)]
    named = {(api.name, path) for api, path in lists}
    assert {(row.name, path) for row in APIS for path in (*row.bounds, *row.one_pass)} <= named
    assert {(row.name, each.request) for row in APIS if row.parts is not None for each in row.parts.lists} <= named
