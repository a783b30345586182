"""Limits of bytes: unfinished requests, replies that nobody takes, fetches, batches, strings; and of counts."""

from __future__ import annotations

import time

from bench.frames import batch_of, fetch_frame, produce_frame
from bench.processes import memory
from moldau.protocol.compression import Codec
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from moldau.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from moldau.protocol.record_builder import Record, build_batch
from tests.limits.stage import HONEST, Stage

PART_SIZE = 1_000_000
READERS = 20
PIECE_SIZE = 30_000
"""Copied, not sent as it lies: only that holds memory."""


def queued_request_bytes(stage: Stage) -> None:
    """Twenty requests that stop half-way hold no more than the pool and one request, and are given up."""
    hostile = [stage.connect() for _ in range(20)]
    for each in hostile:
        each.setblocking(False)
        data = memoryview((2 * PART_SIZE).to_bytes(4, "big") + bytes(PART_SIZE))
        while data:
            try:
                data = data[each.send(data) :]
            except BlockingIOError:
                break
    used = "kafka_network_socketserver_memorypoolused"
    stage.eventually("somebody waits", lambda: stage.metric("moldau_request_memory_waits_total") > 0)
    stage.check(stage.metric(used) <= 4_000_000 + 2_100_000, f"{stage.metric(used):.0f} bytes are held")
    large = batch_of([500] * 1000, time.time_ns() // 1_000_000)
    began = time.monotonic()
    stage.check(stage.produce(HONEST, large) is ErrorCode.NONE, "a large produce is refused")
    took_s = time.monotonic() - began
    stage.check(took_s < 30, f"a large produce takes {took_s:.0f} s")
    stage.eventually("who stopped is given up", lambda: stage.metric("moldau_request_memory_stalled_total") > 0, 45)
    stage.check(memory(stage.node.pid).resident_mb < stage.idle_mb + 30, "it has grown by more than 30 MB")


def unsent_reply_bytes(stage: Stage) -> None:
    """Readers that take nothing, and one that takes a byte now and then, are given up once there is no room."""
    stage.check(stage.create("read", max_message_bytes=100_000) is ErrorCode.NONE, "no topic")
    piece = batch_of([900] * (PIECE_SIZE // 910), time.time_ns() // 1_000_000)
    stage.check(stage.produce("read", piece) is ErrorCode.NONE, "nothing to read")
    readers = [stage.connect(receive_buffer=4096) for _ in range(READERS)]
    frame = fetch_frame("read", 0, PIECE_SIZE + 2000)
    for each in readers:
        each.sendall(frame * 250)
    used = "moldau_reply_memory_used_bytes"
    stage.eventually("there is no room", lambda: stage.metric(used) >= 1_000_000)
    aborted = "moldau_slow_readers_aborted_total"
    slow = readers[0]
    deadline = time.monotonic() + 75
    while stage.metric(aborted) == 0 or stage.metric(used) >= 1_000_000:
        stage.check(time.monotonic() < deadline, "slow readers are kept for 75 s while there is no room")
        stage.check(stage.metric(used) <= 1_000_000 + READERS * 400_000, f"{stage.metric(used):.0f} bytes are held")
        stage.check(len(stage.fetch("read")) == len(piece), "an honest fetch does not get its batch")
        time.sleep(1)
        try:
            slow.recv(1)
        except OSError:
            break  # it was the one
    stage.eventually("there is room", lambda: stage.metric(used) < 1_000_000, 60)


def fetch_size(stage: Stage) -> None:
    """A fetch gives fetch.max.bytes at most, whatever is asked for, but a whole batch."""
    for _ in range(20):
        batch = batch_of([900] * 20, time.time_ns() // 1_000_000)
        stage.check(stage.produce(HONEST, batch) is ErrorCode.NONE, "not appended")
    for limit in (1 << 30, 100_000):
        size = len(stage.fetch(HONEST, size_max=limit))
        stage.check(0 < size <= 100_000, f"asked for {limit}, got {size} bytes")
    stage.check(len(stage.fetch(HONEST, size_max=0)) > 0, "the first batch is left out")


def batch_expansion(stage: Stage) -> None:
    """What would expand past the setting is MESSAGE_TOO_LARGE, and takes no memory in proportion."""
    bomb = build_batch([Record(b"k", bytes(5 << 20), 1000)] * 12, codec=Codec.ZSTD)
    for _ in range(3):
        stage.check(stage.produce(HONEST, bomb) is ErrorCode.MESSAGE_TOO_LARGE, "the bomb is not refused")
    stage.check(stage.metric("moldau_large_batches_examined_total") == 3, "it was examined on the loop")
    grown_mb = memory(stage.node.pid).resident_mb - stage.idle_mb
    stage.check(grown_mb < 40, f"it has grown by {grown_mb:.0f} MB")
    large = batch_of([900] * 1300, time.time_ns() // 1_000_000)
    stage.check(stage.produce(HONEST, large) is ErrorCode.MESSAGE_TOO_LARGE, "a batch past message.max.bytes is taken")


def partitions(stage: Stage) -> None:
    """One request makes 10,000 at most; what is refused leaves nothing behind."""
    stage.check(stage.create("many", 10_001) is ErrorCode.POLICY_VIOLATION, "10,001 partitions are made")
    stage.check(stage.create("many", 100) is ErrorCode.NONE, "a hundred are not")


def members(stage: Stage) -> None:
    """The group is full at group.max.size."""
    first, second = _join(stage, "full", "1"), _join(stage, "full", "2")
    codes = (first, second)
    stage.check(codes == (ErrorCode.NONE, ErrorCode.GROUP_MAX_SIZE_REACHED), f"the joins answer {codes}")
    stage.check(stage.metric("moldau_group_members") == 1, "the members are not counted")


def _join(stage: Stage, group: str, instance: str) -> ErrorCode:
    wanted = JoinGroupRequestProtocol(name="range", metadata=b"x")
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=6000,
        rebalance_timeout_ms=6000,
        member_id="",
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=[wanted],
    )
    found = FindCoordinatorRequest(key=group)
    deadline = time.monotonic() + 20
    while True:
        stage.client.ask(found, FindCoordinatorResponse, 3)
        code = ErrorCode(stage.client.ask(request, JoinGroupResponse, 6).error_code)
        if code not in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR):
            return code
        stage.check(time.monotonic() < deadline, "no coordinator")
        time.sleep(0.1)


def strings(stage: Stage) -> None:
    """Metadata of offsets past offset.metadata.max.bytes, names past 249 characters, a length without bytes."""
    found = _commit(stage, "x" * 4097), _commit(stage, "x" * 4096)
    stage.check(found == (ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.NONE), f"the commits answer {found}")
    stage.check(stage.create("t" * 250) is ErrorCode.INVALID_TOPIC_EXCEPTION, "a long name is taken")
    liar = stage.connect()
    frame = bytearray(produce_frame(HONEST, batch_of([10], 0)))
    position = frame.index(HONEST.encode()) - 1
    frame[position : position + 1] = b"\xff\xff\xff\xff\x0f"  # the length of the topic's name
    liar.sendall((len(frame) - 4).to_bytes(4, "big") + frame[4:])
    stage.check(stage.is_closed(liar), "a string of four gigabytes is waited for")


def _commit(stage: Stage, metadata: str) -> ErrorCode:
    _join(stage, "strings-ready", "1")  # by then there are coordinators
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata=metadata)
    topics = [OffsetCommitRequestTopic(name=HONEST, partitions=[part])]
    request = OffsetCommitRequest(group_id="strings", member_id="", topics=topics)
    answer = stage.client.ask(request, OffsetCommitResponse, 7)
    return ErrorCode(answer.topics[0].partitions[0].error_code)
