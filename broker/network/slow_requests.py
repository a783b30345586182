"""The log of slow requests: one line for each request above `moldau.slow.request.ms`, with its stages.

    slow_request api=Produce version=9 total_ms=312.4 queue_ms=0.2 decode_ms=0.1 local_ms=311.0 remote_ms=0.0 ...

The line is made of `name=value` pairs that are separated by spaces. A value with a space, a quote or a control
character is written as a JSON string. So a client's text cannot end a line or add a pair. The wait that a client asks
for, as a consumer does for new records, does not make its request slow.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Final

from moldau.broker.runtime.pending import REQUESTED_WAITS
from moldau.protocol.late_tuple import NamedTuple

if TYPE_CHECKING:
    from moldau.broker.network.route import ClientConnection, FrameHook, RequestContext

log = logging.getLogger("moldau.slow")

LINES_MAX: Final = 10
"""The maximum number of lines that are logged in `PERIOD_S`."""
PERIOD_S: Final = 1.0
PARTITIONS_MAX: Final = 5
"""The maximum number of partitions that a line names."""
TEXT_LENGTH_MAX: Final = 128
"""The maximum length (characters) of a client's text in a line."""
NEVER_NS: Final = 1 << 60

STAGES: Final = ("queue", "decode", "local", "remote", "encode", "response queue", "send")
"""The names of the stages of a request, which `request_times.py` explains."""
HOOKED_STAGES: Final = ("queue", "local", "send")
"""The names of the stages of a frame that a hook answered."""
LogPairs = list[tuple[str, object]]


class RequestStage(NamedTuple):
    """The name of a stage of a request, with its beginning and end (ns, the precise clock)."""

    name: str
    begin_ns: int
    end_ns: int


class SlowRequest(NamedTuple):
    """A request that took longer than the threshold."""

    api: str
    stages: list[RequestStage]
    """The stages in their order, without gaps."""
    pairs: LogPairs
    """The names and values in the log line."""


class SlowRequests:
    """The log of slow requests of one node. A request that is not slow costs one comparison with `threshold_ns`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threshold_ms: int) -> None:
        self._loop = loop
        self.threshold_ns = NEVER_NS
        self.count = 0
        """The number of slow requests since the start, including requests that were not logged."""
        self.told: Callable[[SlowRequest], None] | None = None
        """Called for each request that has a line; None if traces are not exported."""
        self._said_count = 0
        self._left_out_count = 0
        self._until_s = -PERIOD_S
        self.set_threshold(threshold_ms)

    def set_threshold(self, threshold_ms: int) -> None:
        """Set the time (ms) above which a request is slow; -1 to log none."""
        self.threshold_ns = NEVER_NS if threshold_ms < 0 else threshold_ms * 1_000_000

    def finished(self, context: RequestContext, sent_ns: int, *, was_abandoned: bool = False) -> None:
        """Log a finished request if it took longer than the threshold. A wait that the client has asked for does not
        count.
        """
        waited_ns = context.completed_ns - context.handled_ns
        total_ns = sent_ns - context.received_ns
        own_ns = total_ns - waited_ns if context.waits_for in REQUESTED_WAITS else total_ns
        if own_ns <= self.threshold_ns or not self._may_say():
            return
        pairs: LogPairs = [
            ("api", context.route.name),
            ("version", context.version),
            ("total_ms", _ms(total_ns)),
            ("queue_ms", _ms(context.began_ns - context.received_ns)),
            ("decode_ms", _ms(context.decoded_ns - context.began_ns)),
            ("local_ms", _ms(context.handled_ns - context.decoded_ns)),
            ("remote_ms", _ms(waited_ns)),
            ("waits_for", context.waits_for),
            ("encode_ms", _ms(context.encoded_ns - context.completed_ns)),
            ("response_queue_ms", _ms(context.written_ns - context.encoded_ns)),
            ("send_ms", _ms(sent_ns - context.written_ns)),
            ("request_bytes", context.request_size),
            ("response_bytes", context.response_size),
            *_client(context.connection, context.client_id),
            ("correlation_id", context.correlation_id),
            *_named(named_partitions(context.request)),
        ]
        if was_abandoned:
            pairs.append(("abandoned", "true"))
        log.warning("slow_request %s", _line(pairs))
        if self.told is not None:
            stamps = (
                context.received_ns,
                context.began_ns,
                context.decoded_ns,
                context.handled_ns,
                context.completed_ns,
                context.encoded_ns,
                context.written_ns,
                sent_ns,
            )
            self.told(SlowRequest(context.route.name, _stages(STAGES, stamps), pairs))

    def hooked(
        self, hook: FrameHook, connection: ClientConnection, count: int, stamps: tuple[int, int, int, int]
    ) -> None:
        """Log frames that a hook answered one after the other, because together they took longer than the threshold.
        `stamps` are the times (ns) of receive, begin, write and send.
        """
        if not self._may_say():
            return
        received_ns, began_ns, written_ns, sent_ns = stamps
        pairs: LogPairs = [
            ("api", hook.route.name),
            ("requests", count),
            ("total_ms", _ms(sent_ns - received_ns)),
            ("queue_ms", _ms(began_ns - received_ns)),
            ("local_ms", _ms(written_ns - began_ns)),
            ("send_ms", _ms(sent_ns - written_ns)),
            *_client(connection, hook.client_id),
            *_named(iter(hook.partitions())),
        ]
        log.warning("slow_request %s", _line(pairs))
        if self.told is not None:
            self.told(SlowRequest(hook.route.name, _stages(HOOKED_STAGES, stamps), pairs))

    def _may_say(self) -> bool:
        self.count += 1
        now_s = self._loop.time()
        if now_s >= self._until_s:
            self._until_s = now_s + PERIOD_S
            self._said_count = 0
        if self._said_count < LINES_MAX:
            self._said_count += 1
            return True
        if not self._left_out_count:
            self._loop.call_at(self._until_s, self._sum_up)
        self._left_out_count += 1
        return False

    def _sum_up(self) -> None:
        log.warning("%d more requests were slow in the last second, not named one by one", self._left_out_count)
        self._left_out_count = 0


def _stages(names: tuple[str, ...], stamps: tuple[int, ...]) -> list[RequestStage]:
    return [RequestStage(name, *times) for name, times in zip(names, pairwise(stamps), strict=True)]


def _client(connection: ClientConnection, client_id: str | None) -> LogPairs:
    return [
        ("client_id", client_id or ""),
        ("client", f"{connection.client_host}:{connection.client_port}"),
        ("principal", str(connection.access.principal)),
        ("listener", connection.listener.name),
    ]


def _named(partitions: Iterator[str]) -> LogPairs:
    """Return the field `partitions` of a log line as a list of one pair. It lists the first `PARTITIONS_MAX`
    partitions, then "..." if there are more. The list is empty if there are no partitions.
    """
    first = list(islice(partitions, PARTITIONS_MAX + 1))
    if len(first) > PARTITIONS_MAX:
        first[-1] = "..."
    return [("partitions", ",".join(first))] if first else []


def named_partitions(request: object) -> Iterator[str]:
    """Yield the partitions that a request names, as topic-index; a topic without partitions by its name. They are read
    from the fields that Kafka's schemas use for topics and partitions.
    """
    for field in ("topic_data", "topics"):
        for topic in getattr(request, field, None) or ():
            name = topic if isinstance(topic, str) else _topic(topic)
            indexes = [
                index
                for name_of_field in ("partition_data", "partitions", "partition_indexes")
                for index in islice(getattr(topic, name_of_field, None) or (), PARTITIONS_MAX + 1)
            ]
            if not indexes:
                yield name
            for index in indexes:
                yield f"{name}-{_index(index)}"


def _topic(topic: object) -> str:
    name = getattr(topic, "name", None) or getattr(topic, "topic", None)
    if name:
        return str(name)
    topic_id = getattr(topic, "topic_id", None)
    return topic_id.hex() if isinstance(topic_id, bytes) else "?"


def _index(partition: object) -> object:
    if isinstance(partition, int):
        return partition
    for field in ("index", "partition_index", "partition"):
        found = getattr(partition, field, None)
        if found is not None:
            return found
    return "?"


def _ms(time_ns: int) -> str:
    return f"{time_ns / 1e6:.3f}"


def _line(pairs: LogPairs) -> str:
    return " ".join(f"{name}={_text(str(value))}" for name, value in pairs)


def _text(value: str) -> str:
    value = value if len(value) <= TEXT_LENGTH_MAX else value[:TEXT_LENGTH_MAX] + "..."
    if value.isprintable() and not any(each in value for each in ' "=\\'):
        return value
    import json

    return json.dumps(value)
