"""StreamsGroupHeartbeat (API key 88, versions 0-1; KIP-1071, KIP-1331): members of a streams group join, stay and
leave.

1: offsets of tasks, which are not used here; whether the broker asks for a description of the topology (KIP-1331),
which it never does here. Here the names of a topology's topics are checked, and the permission to describe them.
Missing internal topics are created after the heartbeat, if the client may create them.

DIVERGES: in version 1 Apache Kafka tells the lag at which a warm-up task counts as caught up; here there are no warm-up
tasks, and the lag is -1.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from functools import partial
from typing import Any, Final

from moldau.broker.apis.api import Api
from moldau.broker.apis.coordinator import MEMBER_TOPICS_MAX, hash_then_submit, submit_event
from moldau.broker.apis.lists import at_most
from moldau.broker.apis.needs import needs, on_cluster, on_group, on_topic
from moldau.broker.apis.parts import Answering
from moldau.broker.apis.services import Services
from moldau.broker.config.internal_topics import INTERNAL_TOPICS
from moldau.broker.network.route import RequestContext
from moldau.broker.runtime.pending import Reply
from moldau.coordinator.streams.configured_topology import StatusCode
from moldau.coordinator.streams.events import HeartbeatReply, StreamsHeartbeat, refusal_response
from moldau.kraft.controller.apis import ENTRIES_MAX
from moldau.kraft.topic_names import refusal_of_name
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig
from moldau.protocol.messages.streams_group_heartbeat import (
    Status,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from moldau.security.access import Access, AclOperation

FEATURE: Final = "streams.version"
LISTED_ERRORS_MAX: Final = 3
"""The most topics for which a status says why they were not created."""


def handle(services: Services, context: RequestContext, request: StreamsGroupHeartbeatRequest) -> object:
    # DIVERGES: Apache Kafka looks at the feature first; here a client without rights on the group is told so even if
    # the feature is off.
    if not services.groups.serves(FEATURE, services.cluster.image.features.levels):
        return refusal_response(ErrorCode.UNSUPPORTED_VERSION)
    if context.version >= 1:
        request.task_offsets = request.task_end_offsets = None
    client_id, client_host, access = context.client_id or "", f"/{context.client_host}", context.access

    def submitted() -> Reply[StreamsGroupHeartbeatResponse]:
        return submit_event(
            services.groups.runner_of(request.group_id),
            context.version,
            lambda waiter: StreamsHeartbeat(waiter, request, client_id, client_host),
            lambda error: refusal_response(error if request.group_id else ErrorCode.INVALID_REQUEST),
            partial(with_topics_created, services, access),
        )

    if request.topology is None:
        return submitted()
    subtopologies = request.topology.subtopologies

    def looking() -> Answering:
        names = topics_of(subtopologies)
        refusal = yield from refusal_of_topics(names, access)
        return refusal or (yield from hash_then_submit(services, names, submitted))

    return services.long_requests.answer(context, looking())


def refusal_of_topics(
    names: Sequence[str], access: Access
) -> Generator[None, None, StreamsGroupHeartbeatResponse | None]:
    """Refuse a topology that names an internal topic of Kafka, an invalid topic, or a topic that the client may not
    describe. Returns None for any other topology. Yields after every name, so that other tasks run."""
    own, invalid = [], []
    for name in names:
        if name in INTERNAL_TOPICS:
            own.append(name)
        elif refusal_of_name(name) is not None:
            invalid.append(name)
        yield
    if own:
        message = f"Use of Kafka internal topics {','.join(own)} in a Kafka Streams topology is prohibited."
        return refusal_response(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)
    if invalid:
        message = f"Topic names {','.join(invalid)} are not valid topic names."
        return refusal_response(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)
    is_denied = False
    for name in names:
        is_denied |= bool(denied_of([name], AclOperation.DESCRIBE, access))
        yield
    return refusal_response(ErrorCode.TOPIC_AUTHORIZATION_FAILED) if is_denied else None


def topics_of(subtopologies: Iterable[Any]) -> list[str]:
    """The names of all topics in the subtopologies of a request or of a response, without repetitions."""
    names: dict[str, None] = {}
    for subtopology in subtopologies:
        names |= dict.fromkeys((*subtopology.source_topics, *subtopology.repartition_sink_topics))
        names |= dict.fromkeys(each.name for each in subtopology.repartition_source_topics)
        names |= dict.fromkeys(each.name for each in subtopology.state_changelog_topics)
    return list(names)


def with_topics_created(services: Services, access: Access, reply: object) -> StreamsGroupHeartbeatResponse:
    """Complete the response to a heartbeat. Missing topics are requested from the controller, without waiting for them.

    A topic that was not created is requested again after two heartbeats."""
    assert isinstance(reply, HeartbeatReply)
    response, topics = reply
    if not topics:
        return response
    may_create_all = on_cluster(AclOperation.CREATE).is_met_quietly(access)
    denied = [] if may_create_all else denied_of(topics, AclOperation.CREATE, access)
    if denied:
        add_to_status(response, f"Unauthorized to CREATE on topics {', '.join(denied)}.")
        return response
    now_ms = services.environment.monotonic_ms()
    failed = services.topics.failures(topics, now_ms)
    for each in topics.values():
        if each.name not in failed:
            services.topics.create_for_group(
                CreatableTopic(
                    name=each.name,
                    num_partitions=each.partitions,
                    replication_factor=each.replication_factor or -1,
                    configs=[CreatableTopicConfig(name=key, value=value) for key, value in each.configs],
                ),
                now_ms + 2 * response.heartbeat_interval_ms,
            )
    if failed:
        listed = ", ".join(f"{name} ({reason})" for name, reason in [*failed.items()][:LISTED_ERRORS_MAX])
        others = len(failed) - LISTED_ERRORS_MAX
        add_to_status(response, f"Creation failed: {listed}{f' and {others} more' if others > 0 else ''}.")
    return response


def denied_of(names: Iterable[str], operation: AclOperation, access: Access) -> list[str]:
    """The names of the topics on which the client may not do the operation. The decisions go to the audit log."""
    return [name for name in names if not on_topic(operation, name).is_met(access)]


def add_to_status(response: StreamsGroupHeartbeatResponse, detail: str) -> None:
    """Add a detail to the status MISSING_INTERNAL_TOPICS of a response."""
    statuses = response.status = response.status or []
    for status in statuses:
        if status.status_code == StatusCode.MISSING_INTERNAL_TOPICS:
            status.status_detail += f"; {detail}"
            return
    statuses.append(Status(status_code=StatusCode.MISSING_INTERNAL_TOPICS, status_detail=detail))


TASK_ROLES: Final = ("active", "standby", "warmup")
TASKS_MAX: Final = 10 * ENTRIES_MAX
"""The most tasks that a member of a streams group may report in one role."""
SUBTOPOLOGY_LISTS: Final = (
    "source_topics",
    "source_topic_regex",
    "state_changelog_topics",
    "state_changelog_topics.topic_configs",
    "repartition_sink_topics",
    "repartition_source_topics",
    "repartition_source_topics.topic_configs",
    "copartition_groups",
    "copartition_groups.source_topics",
    "copartition_groups.source_topic_regex",
    "copartition_groups.repartition_source_topics",
)

API: Final = Api(
    StreamsGroupHeartbeatRequest,
    broker=handle,
    needs=needs(on_group, AclOperation.READ, "group_id"),
    lists=[
        at_most(ENTRIES_MAX, "topology.subtopologies", "client_tags", "task_offsets", "task_end_offsets"),
        at_most(MEMBER_TOPICS_MAX, *(f"topology.subtopologies.{part}" for part in SUBTOPOLOGY_LISTS)),
        at_most(ENTRIES_MAX, *(f"{role}_tasks" for role in TASK_ROLES)),
        at_most(TASKS_MAX, *(f"{role}_tasks.partitions" for role in TASK_ROLES)),
    ],
)
