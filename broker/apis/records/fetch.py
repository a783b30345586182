"""Fetch (API key 1, versions 4-18; KIP-227, KIP-392, KIP-516, KIP-595, KIP-903, KIP-951): reads records.

5: log start offsets (KIP-107) · 7: fetch sessions (KIP-227) · 9: leader epochs (KIP-320) · 10: zstd (KIP-110) · 11:
reads from followers (KIP-392) · 12: diverging epochs (KIP-595) · 13: topic ids (KIP-516) · 15: broker epochs (KIP-903)
· 16: current leaders (KIP-951) · 17: directory ids (KIP-853) · 18: the follower's high watermark (KIP-1166).

The handler opens the session, plans what to read, reads or waits in the purgatory, and answers. `replication/` decides
what is read and what the session includes. This module adds what needs a broker: the wait, an executor thread for
lookups that need the disk, and the records themselves (`fetched_records.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from moldau.broker.apis.api import Api
from moldau.broker.apis.forwarding import close_on_failure, guarded
from moldau.broker.apis.needs import handler_asks, needs_cluster, on_cluster, on_topic
from moldau.broker.apis.records.current_leaders import FIRST_FETCH_VERSION, add_to_fetch
from moldau.broker.apis.records.fetch_parts import FetchParts
from moldau.broker.apis.records.fetched_records import read_records, sends_from_file
from moldau.broker.apis.services import Services
from moldau.broker.metadata.cluster_view import ClusterView
from moldau.broker.network.client_quotas import is_exempt
from moldau.broker.network.route import RequestContext
from moldau.broker.purgatory.purgatory import HIGH_WATERMARK, LAST_STABLE_OFFSET, LOG_END_OFFSET, DelayedOperation
from moldau.broker.runtime.pending import DATA, DISK, Pending, Reply
from moldau.protocol.compiler import encoder_of
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.fetch import FetchableTopicResponse, FetchPartition, FetchRequest, FetchResponse
from moldau.protocol.primitives import Chunk
from moldau.protocol.refusals import refused
from moldau.replication.fetch_plan import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    PlannedRead,
    isolation_of,
    unknown_partition_answer,
)
from moldau.replication.fetch_session import FetchContext, is_of_follower
from moldau.replication.follower_fetch import PartitionKey, replica_of, update_fetch_states
from moldau.replication.partition import Partition
from moldau.replication.source import FetchIsolation, PageCacheMiss, PendingRemoteRead
from moldau.security.access import Access, AclOperation
from moldau.security.quotas.throttling import ClientThrottle
from moldau.storage.files.file_slice import FileSlice

log = logging.getLogger("moldau.fetch")

NONE: Final = ErrorCode.NONE
"""The enum's member as a global name, because its lookup costs as much as a call."""
AWAITED: Final = {
    FetchIsolation.LOG_END: LOG_END_OFFSET,
    FetchIsolation.HIGH_WATERMARK: HIGH_WATERMARK,
    FetchIsolation.TXN_COMMITTED: LAST_STABLE_OFFSET,
}
"""The offset that has to advance before more can be read, by isolation of the fetch."""
SIZE_SIZE: Final = 4
"""The size (bytes) of the size field before a frame. It counts for the quota."""
NO_REFUSALS: Final[Sequence[PlannedRead]] = ()
COLD_LOOKUPS_MAX: Final = 16
"""The most times that a fetch is planned again because the page cache lacks a page. After that, lookups wait for the
disk.
"""


def handle(services: Services, context: RequestContext, request: FetchRequest) -> Reply[FetchResponse]:
    """Answer a fetch: at once if enough bytes are available, otherwise later."""
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        response: FetchResponse = refused(request, context.version, ErrorCode.UNKNOWN_SERVER_ERROR)
        return response
    now_ms = services.environment.monotonic_ms()
    is_follower = is_of_follower(request) and (context.access.is_unrestricted or is_exempt(context, request))
    if is_follower:
        context.connection.is_of_follower = True
    fetch = services.fetch_sessions.open(request, context.version, now_ms, is_follower=is_follower)
    if fetch.error is not NONE:
        return FetchResponse(error_code=fetch.error)
    return Fetch(services, context, request, fetch).answer(now_ms)


class Fetch:
    """One Fetch request, until it is answered. It is the `FetchLimits` by which its reads are planned."""

    __slots__ = (
        "_agreeing",
        "_context",
        "_fetch",
        "_lookups_left",
        "_permissions",
        "_quota",
        "_remote_deadline_ms",
        "_replica",
        "_request",
        "_services",
    )

    def __init__(self, services: Services, context: RequestContext, request: FetchRequest, fetch: FetchContext) -> None:
        self._services = services
        self._context = context
        self._request = request
        self._fetch = fetch
        self._replica = replica_of(request)
        self._permissions: FetchPermissions | None = None
        """The partitions that the client may read; None if its access is not restricted."""
        if not context.access.is_unrestricted:
            self._restrict(context.access)
        self._quota = services.quotas.fetch if self._replica is None else None
        """The byte rates of consumers; None if no quota is set, or if the client is a follower."""
        self._lookups_left = COLD_LOOKUPS_MAX
        self._remote_deadline_ms: int | None = None
        """The monotonic time (ms) at which the wait for remote storage ends; None before such a wait."""
        self._agreeing: dict[PartitionKey, None] = {}
        """The partitions whose log agrees with that of the follower, as this event loop iteration has found."""

    def _restrict(self, access: Access) -> None:
        is_follower = self._replica is not None
        self._permissions = FetchPermissions(access, self._services.cluster, is_follower=is_follower)
        if not self._permissions.replicates:
            self._replica = None

    @property
    def size_max(self) -> int:
        size_max, quota = self._services.fetch_size_max, self._quota
        return size_max if quota is None else fetch_size_max(quota, self._context, size_max)

    @property
    def memory_size_max(self) -> int:
        return self._services.reply_memory.room()

    @property
    def may_wait_for_remote(self) -> bool:
        deadline_ms = self._remote_deadline_ms
        return deadline_ms is None or self._services.environment.monotonic_ms() < deadline_ms

    def can_send_from_file(self, place: FileSlice) -> bool:
        return sends_from_file(self._context.connection, place)

    def answer(self, now_ms: int) -> Reply[FetchResponse]:
        services, request, fetch = self._services, self._request, self._fetch
        if self._replica is not None:
            self._agreeing = update_fetch_states(
                services.replicas, services.in_sync_changes, self._replica, fetch.wanted, now_ms, fetch.updates
            )
            if request.max_wait_ms > 0 and request.min_bytes > 0 and self._has_all():
                self._agreeing = {}
                return self._wait()
        return self._attempt(request.max_wait_ms <= 0) or self._wait()

    def _has_all(self) -> bool:
        """Whether a follower has all records of all its partitions, and has deleted everything that the leader has
        deleted. Then its fetch waits without planning reads."""
        fetch = self._fetch
        if not fetch.awaits_updates() or fetch.has_further_updates():
            return False
        replicas, agreeing = self._services.replicas, self._agreeing
        for key, requested in fetch.wanted:
            partition = replicas.find(key) if key in agreeing else None
            if partition is None or requested.fetch_offset != partition.log.end_offset:
                return False
            if requested.log_start_offset < partition.log.log_start_offset:
                return False
        return True

    def _attempt(self, is_last: bool) -> Reply[FetchResponse] | None:
        """Make the response; None if fewer bytes are available than the client asks for, and `is_last` is False."""
        request, fetch, planner = self._request, self._fetch, self._services.fetch_planner
        fetch.refresh_wanted()
        waits, agreeing, self._agreeing = self._lookups_left == 0, self._agreeing, {}
        wanted, refusals = fetch.wanted, NO_REFUSALS
        if self._permissions is not None:
            wanted, refusals = self._permissions.divided(wanted)
        reads = planner.plan(request, self._context.version, wanted, self._replica, agreeing, self, waits)
        if isinstance(reads, PageCacheMiss):
            return self._warm(reads, is_last)
        if isinstance(reads, PendingRemoteRead):
            return self._await_remote(reads, is_last)
        reads.extend(refusals)
        size = sum(read.size for read in reads)
        quota = self._quota
        min_bytes = request.min_bytes if quota is None else min(request.min_bytes, self.size_max)
        has_enough = size >= min_bytes or any(read.is_urgent for read in reads) or fetch.reports_deletion(reads)
        if is_last or has_enough or not (reads or fetch.awaits_updates()):
            if self._replica is not None:
                planner.count_throttled(reads)
            elif quota is not None:
                throttle_ms = fetch_throttle_ms(quota, self._context, reads, self._services.environment.monotonic_ms())
                if throttle_ms:
                    return self._services.fetch_sessions.throttled_response(fetch, throttle_ms)
            return read_records(self._services, self._context.connection, reads, partial(self._respond, reads))
        return None

    def _wait(self) -> Pending[FetchResponse]:
        purgatory, wait_ms, updates = self._services.purgatory, self._request.max_wait_ms, self._fetch.updates
        if self._replica is not None:
            wait_ms = purgatory.followers.wait_ms(wait_ms)
        attempt = guarded(self._context.connection, self._attempt)
        operation: DelayedOperation[FetchResponse] = DelayedOperation(purgatory, "Fetch", wait_ms, attempt, DATA)
        if updates is not None:
            operation.watch_updates(updates)
        else:
            isolation = isolation_of(self._request, self._replica)
            operation.watch(self._wanted(), AWAITED[isolation])
        if self._replica is not None:
            purgatory.followers.add(operation)
        return operation.reply

    def _wanted(self) -> list[Partition]:
        replicas = self._services.replicas
        return [found for key, _ in self._fetch.wanted if (found := replicas.find(key)) is not None]

    def _warm(self, cold: PageCacheMiss, is_last: bool) -> Pending[FetchResponse]:
        """Read the bytes for a lookup into the page cache in an executor thread, then plan the fetch again."""
        reply: Pending[FetchResponse] = Pending(waits_for=DISK)
        self._lookups_left -= 1

        def plan_again(has_failed: bool) -> None:
            if has_failed:
                self._lookups_left = 0
            reply.follow(self._attempt(is_last) or self._wait())

        work = warm_page_cache(self._services, cold, plan_again)
        self._services.spawn(close_on_failure(self._context.connection, work))
        return reply

    def _await_remote(self, remote: PendingRemoteRead, is_last: bool) -> Pending[FetchResponse]:
        """Plan the fetch again when a read of remote storage ends, or when remote.fetch.max.wait.ms is over. In the
        second case the read continues, and the client's next fetch finds its records."""
        reply: Pending[FetchResponse] = Pending(waits_for=DISK)
        services = self._services
        now_ms = services.environment.monotonic_ms()
        if self._remote_deadline_ms is None:
            self._remote_deadline_ms = now_ms + services.settings.config.integer("remote.fetch.max.wait.ms")

        def plan_again() -> None:
            reply.follow(self._attempt(is_last or not self.may_wait_for_remote) or self._wait())

        guard = guarded(self._context.connection, plan_again)
        plan_again_when_read(remote, self._remote_deadline_ms - now_ms, guard)
        return reply

    def _respond(self, reads: list[PlannedRead]) -> FetchResponse:
        response = self._fetch.respond(reads)
        if self._context.version >= FIRST_FETCH_VERSION and any(read.data.error_code != NONE for read in reads):
            add_to_fetch(self._services, self._context.listener.name, response)
        return response


async def warm_page_cache(services: Services, cold: PageCacheMiss, plan_again: Callable[[bool], None]) -> None:
    """Read the bytes for a lookup into the page cache in an executor thread. Then call `plan_again` with True if the
    disk failed, otherwise with False."""
    has_failed = False
    try:
        await services.environment.offload(cold.place.warm)
    except OSError as error:
        log.error("an index cannot be read for a fetch: %s", error)
        cold.log.fail_unless_transient(error)
        has_failed = True
    await asyncio.sleep(0)  # By the next iteration of the loop the partition of a log that failed is offline.
    plan_again(has_failed)


def plan_again_when_read(remote: PendingRemoteRead, wait_ms: int, plan_again: Callable[[], None]) -> None:
    """Call `plan_again` once: when a read of remote storage ends, or after `wait_ms`."""
    loop, is_over = asyncio.get_running_loop(), False

    def once() -> None:
        nonlocal is_over
        if not is_over:
            is_over = True
            timer.cancel()
            plan_again()

    timer = loop.call_later(max(wait_ms, 0) / 1000, once)
    remote.add_done_listener(partial(_soon, loop, once))


def _soon(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    loop.call_soon(callback)


class FetchPermissions:
    """The decisions of the ACLs for the partitions of one Fetch. Each decision is made once.

    A follower needs CLUSTER_ACTION. A client that sends a replica id without this permission reads nothing, and moves
    no high watermark (CVE-2018-1288). A consumer needs READ on each topic. An unknown topic id needs no permission: it
    gets the usual error, which reveals no topic."""

    def __init__(self, access: Access, cluster: ClusterView, *, is_follower: bool) -> None:
        self._access = access
        self._topics = cluster.image.topics
        self._by_topic: dict[str | bytes, bool] = {}
        self.replicates = is_follower and on_cluster(AclOperation.CLUSTER_ACTION).is_met(access)
        """Whether the client is a follower with the permission to fetch."""
        self._reads_nothing = is_follower and not self.replicates

    def divided(
        self, wanted: Iterable[tuple[PartitionKey, FetchPartition]]
    ) -> tuple[list[tuple[PartitionKey, FetchPartition]], list[PlannedRead]]:
        """Split the wanted partitions into those that the client may read, and error responses for the others."""
        allowed: list[tuple[PartitionKey, FetchPartition]] = []
        refusals: list[PlannedRead] = []
        for key, requested in wanted:
            if self._may_read(key[0]):
                allowed.append((key, requested))
            else:
                data = unknown_partition_answer(key[1], ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                refusals.append(PlannedRead(key, data, None))
        return allowed, refusals

    def _may_read(self, key: str | bytes) -> bool:
        if self.replicates or self._reads_nothing:
            return self.replicates
        may_read = self._by_topic.get(key)
        if may_read is None:
            name: str | None
            if isinstance(key, str):
                name = key
            else:
                known = self._topics.by_id.get(key)
                name = None if known is None else known.name
            may_read = self._by_topic[key] = name is None or on_topic(AclOperation.READ, name).is_met(self._access)
        return may_read


# The byte rate of consumers: asked before records are read, so that a client above its quota gets none (KIP-219).


def fetch_size_max(quota: ClientThrottle, context: RequestContext, size_max: int) -> int:
    """The maximum size (bytes) of the records in one response: `size_max`, or less if the client's quota allows less
    over all its windows."""
    most = quota.value_max(context.principal.name, context.client_id or "")
    return size_max if most is None else min(size_max, int(most))


def fetch_throttle_ms(quota: ClientThrottle, context: RequestContext, reads: list[PlannedRead], now_ms: int) -> int:
    """Count the bytes of a response in the client's rate, unless it is throttled. Returns the throttle time (ms)."""
    user, client_id = context.principal.name, context.client_id or ""
    size = response_size(reads, context.version)
    throttle_ms = quota.record(user, client_id, size, now_ms)
    if throttle_ms > 0:
        quota.refund(user, client_id, size, now_ms)
    return throttle_ms


def response_size(reads: Iterable[PlannedRead], version: int) -> int:
    """The size in bytes of the response with these planned reads, before their records are read."""
    topics: dict[object, FetchableTopicResponse] = {}
    records_size = 0
    for read in reads:
        topic, _ = read.key
        named = topics.get(topic)
        if named is None:
            named = topics[topic] = (
                FetchableTopicResponse(topic=topic)
                if isinstance(topic, str)
                else FetchableTopicResponse(topic_id=topic)
            )
        named.partitions.append(read.data)
        records_size += read.size
    pieces: list[Chunk] = []
    encoder_of(FetchResponse, version)(FetchResponse(responses=list(topics.values())), pieces)
    return SIZE_SIZE + sum(map(len, pieces)) + records_size


def fetch_metadata_log(services: Services, context: RequestContext, request: FetchRequest) -> Pending[object]:
    """Pass a fetch of the metadata log, by a member of the quorum, to the Raft state machine, which answers it."""
    return services.quorum.receive(request, context.version, context.listener.name)


API: Final = Api(
    FetchRequest,
    broker=handle,
    controller=fetch_metadata_log,
    needs=needs_cluster(AclOperation.CLUSTER_ACTION),
    broker_needs=handler_asks,
    lists=[FetchParts()],
)
