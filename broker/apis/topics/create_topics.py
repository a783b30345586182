"""CreateTopics (API key 19, versions 2-7; KIP-4, KIP-464, KIP-516, KIP-525, KIP-599): the controller decides.

4: the cluster's defaults (KIP-464) · 5: the settings of the topic (KIP-525) · 6: a client above its quota is refused
(KIP-599) · 7: topic ids (KIP-516).
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from moldau.broker.apis.api import Api, forward, forward_for_partitions
from moldau.broker.apis.lists import at_most
from moldau.broker.apis.needs import Answer, change_response, on_cluster, on_topic, with_field
from moldau.broker.apis.parts import OPEN_MAX, in_parts
from moldau.broker.apis.services import Services
from moldau.broker.network.route import Handler, RequestContext
from moldau.kraft.controller.apis import ENTRIES_MAX
from moldau.kraft.controller.topics.new_partitions import NEW_PARTITIONS_MAX
from moldau.kraft.topic_names import CLUSTER_METADATA_TOPIC
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from moldau.protocol.refusals import refused
from moldau.security.access import AclOperation


def acl_rule(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
    """The rule: CREATE on the cluster, or on each topic. The response has the settings of a topic only if the client
    has DESCRIBE_CONFIGS on it."""
    assert isinstance(request, CreateTopicsRequest)
    access = context.access
    allowed, refused = request.topics, set[str]()
    if not on_cluster(AclOperation.CREATE).is_met_quietly(access):
        # The controller refuses the topic of the metadata log, and a topic that is named twice, to every client.
        counts = Counter(each.name for each in request.topics)
        names = [name for name, count in counts.items() if count == 1 and name != CLUSTER_METADATA_TOPIC]
        refused = {name for name in names if not on_topic(AclOperation.CREATE, name).is_met(access)}
        allowed = [each for each in request.topics if each.name not in refused]

    def told(response: CreateTopicsResponse) -> CreateTopicsResponse:
        for each in response.topics:
            if each.error_code == ErrorCode.NONE and not on_topic(
                AclOperation.DESCRIBE_CONFIGS, each.name
            ).is_met_quietly(access):
                each.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                each.num_partitions = each.replication_factor = -1
                each.configs = []
        response.topics.extend(
            CreatableTopicResult(
                name=name, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, error_message="Authorization failed."
            )
            for name in sorted(refused)
        )
        return response

    return change_response(answer(context, with_field(request, "topics", allowed)), told)


def too_many_topics(request: object) -> Handler | None:
    """The handler that refuses a request with too many topics; None for other requests. DIVERGES: Apache Kafka asks the
    ACLs before it refuses more than 10,000 topics; here all are refused at once."""
    assert isinstance(request, CreateTopicsRequest)
    if len(request.topics) <= NEW_PARTITIONS_MAX:
        return None

    return lambda context, part: refused(
        part, context.version, ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation."
    )


API: Final = Api(
    CreateTopicsRequest,
    broker=forward_for_partitions,
    controller=forward,
    needs=acl_rule,
    lists=[
        in_parts("topics", open_max=OPEN_MAX, refuses=too_many_topics),
        at_most(NEW_PARTITIONS_MAX, "topics.assignments"),
        at_most(ENTRIES_MAX, "topics.assignments.broker_ids", "topics.configs"),
    ],
)
