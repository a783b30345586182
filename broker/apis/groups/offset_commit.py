"""OffsetCommit (API key 8, versions 2-10; KIP-211, KIP-320, KIP-345, KIP-848): stores the offsets of a group.

2-4: the client sets the retention (KIP-211) · 6: leader epochs (KIP-320) · 7: static members (KIP-345) · 9: member
epochs · 10: topics by id (KIP-848). Only offsets of partitions that exist are stored.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from moldau.broker.apis.api import Api
from moldau.broker.apis.coordinator import submit_event
from moldau.broker.apis.groups.existing_partitions import add_missing, remove_missing
from moldau.broker.apis.needs import all_of, elements_rule, needs, on_group, topic_by_id
from moldau.broker.apis.parts import OFFSETS_SIZE, in_parts
from moldau.broker.apis.services import Services
from moldau.broker.network.route import RequestContext
from moldau.coordinator.group.events import CommitOffsets
from moldau.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from moldau.protocol.refusals import refused
from moldau.security.access import AclOperation

TOPIC_ID_VERSION: Final = 10
"""The first version in which requests name topics by id."""


def handle(services: Services, context: RequestContext, request: OffsetCommitRequest) -> object:
    by_id = context.version >= TOPIC_ID_VERSION
    merge = partial(add_missing, remove_missing(services.cluster, request, context.version, by_id=by_id), by_id)
    if not request.topics:
        return merge(OffsetCommitResponse())
    return submit_event(
        services.groups.runner_of(request.group_id),
        context.version,
        lambda waiter: CommitOffsets(waiter, request),
        lambda error: merge(refused(request, context.version, error)),
        merge,
    )


API: Final = Api(
    OffsetCommitRequest,
    broker=handle,
    needs=all_of(
        needs(on_group, AclOperation.READ, "group_id"),
        elements_rule("topics", "topics", topic_by_id(AclOperation.READ, TOPIC_ID_VERSION)),
    ),
    lists=[in_parts("topics.partitions", size=OFFSETS_SIZE)],
)
