"""DeleteTopics (API key 20, versions 1-6; KIP-516, KIP-599): the controller decides.

5: a message beside an error, and a client above its quota is refused (KIP-599) · 6: topics by id (KIP-516).
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from moldau.broker.apis.api import Api, forward
from moldau.broker.apis.needs import Answer, change_response, on_cluster, on_topic, with_field
from moldau.broker.apis.parts import OPEN_MAX, ListPath, PartRules
from moldau.broker.apis.services import Services
from moldau.broker.network.route import RequestContext
from moldau.kraft.image.topics import TopicsImage
from moldau.protocol.errors import ERROR_TEXTS, ErrorCode
from moldau.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from moldau.protocol.schema import ZERO_UUID
from moldau.security.access import Access, AclOperation

FAILED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
FAILED_TEXT: Final = ERROR_TEXTS[FAILED]
UNKNOWN: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def acl_rule(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
    """The rule: DELETE on the cluster or on each topic, and DESCRIBE on each topic that is named. The result for an id
    has the name only if the client may describe the topic. What the controller refuses for every client needs no
    permission: a topic named twice, or by name and id, an unknown id, and everything while deletion is disabled."""
    assert isinstance(request, DeleteTopicsRequest)
    access = context.access
    if not services.config.flag("delete.topic.enable") or on_cluster(AclOperation.DELETE).is_met_quietly(access):
        return answer(context, request)
    topics = services.cluster.image.topics
    counts = Counter(request.topic_names)
    counts.update(each.name for each in request.topics if each.name is not None and each.topic_id == ZERO_UUID)
    ids = Counter(each.topic_id for each in request.topics if each.name is None)
    refusals: list[DeletableTopicResult] = []

    def is_passed_on(name: str) -> bool:
        return counts[name] > 1 or _may_delete(access, topics, name, refusals)

    names = [name for name in request.topic_names if is_passed_on(name)]
    passed = []
    for each in request.topics:
        if each.name is not None:
            if each.topic_id != ZERO_UUID or is_passed_on(each.name):
                passed.append(each)
            continue
        known = topics.by_id.get(each.topic_id)
        if known is None or ids[each.topic_id] > 1:
            passed.append(each)
            continue
        if on_topic(AclOperation.DELETE, known.name).is_met(access):
            passed.append(each)
            continue
        shown = known.name if on_topic(AclOperation.DESCRIBE, known.name).is_met_quietly(access) else None
        refusals.append(
            DeletableTopicResult(name=shown, topic_id=each.topic_id, error_code=FAILED, error_message=FAILED_TEXT)
        )
    if not refusals:
        return answer(context, request)

    def add(response: DeleteTopicsResponse) -> DeleteTopicsResponse:
        response.responses.extend(refusals)
        return response

    asked = with_field(with_field(request, "topic_names", names), "topics", passed)
    return change_response(answer(context, asked), add)


def _may_delete(access: Access, topics: TopicsImage, name: str, refusals: list[DeletableTopicResult]) -> bool:
    """Whether the client may delete a topic that it has named. If not, a refusal is added to `refusals`. Only a client
    that may describe the topic learns that it does not exist."""
    if on_topic(AclOperation.DESCRIBE, name).is_met(access):
        if topics.by_name(name) is None:
            refusals.append(DeletableTopicResult(name=name, error_code=UNKNOWN, error_message=ERROR_TEXTS[UNKNOWN]))
            return False
        if on_topic(AclOperation.DELETE, name).is_met(access):
            return True
    refusals.append(DeletableTopicResult(name=name, error_code=FAILED, error_message=FAILED_TEXT))
    return False


API: Final = Api(
    DeleteTopicsRequest,
    broker=forward,
    controller=forward,
    needs=acl_rule,
    lists=[PartRules((ListPath("topics", "responses"), ListPath("topic_names", "responses")), open_max=OPEN_MAX)],
)
