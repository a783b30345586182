"""What a user asks of both brokers under ACLs, and how the answers are made comparable."""

from __future__ import annotations

from moldau.broker.network.route import ListenerRole
from moldau.protocol.compiler import encode
from moldau.protocol.messages.describe_client_quotas import ValueData
from moldau.protocol.messages.fetch import FetchRequest
from moldau.protocol.messages.find_coordinator import FindCoordinatorResponse
from moldau.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker, MetadataResponseTopic
from moldau.security.acl.bindings import PermissionType
from tests.conformance.acl_requests.asked import CREATED, TEXTS, Ids, comparable, in_versions
from tests.conformance.acl_requests.of_cluster import of_brokers
from tests.conformance.scenarios.acls import PHASES, REQUESTS_MIN, UNSEEN, broker_settings, requests
from tests.support.apis import APIS

IDS = Ids({"orders": b"\1" * 16, "hidden": b"\2" * 16})
NOT_ASKED = {
    # Open to all, or the login itself.
    *("ApiVersions", "SaslHandshake", "SaslAuthenticate", "GetTelemetrySubscriptions", "PushTelemetry"),
    # The owner of a token is a user who has logged in: the scenario `logins`.
    *("CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken", "DescribeDelegationToken"),
    # Their features are off on both brokers, as they are formatted for the scenario.
    *("ConsumerGroupHeartbeat", "ConsumerGroupDescribe", "StreamsGroupHeartbeat", "StreamsGroupDescribe"),
    *("ShareGroupHeartbeat", "ShareGroupDescribe", "ShareFetch", "ShareAcknowledge"),
    *("DescribeShareGroupOffsets", "AlterShareGroupOffsets", "DeleteShareGroupOffsets"),
    # Apache Kafka 4.3.1, which is asked the same, does not know these.
    *("StreamsGroupTopologyDescriptionUpdate", "UnregisterController"),
    # Brokers ask these of the share coordinator.
    *("InitializeShareGroupState", "ReadShareGroupState", "ReadShareGroupStateSummary"),
    *("WriteShareGroupState", "DeleteShareGroupState"),
}


def test_every_api_of_a_broker_is_asked_for() -> None:
    asked = {each.name.partition(" ")[0] for each in requests(IDS)}
    assert asked | NOT_ASKED == {api.name for api in APIS if api.listeners.role & ListenerRole.BROKER}


def test_each_request_can_be_written_in_its_version() -> None:
    written = [encode(each.request, each.version) for each in requests(IDS)]
    assert len(written) >= REQUESTS_MIN


def test_a_request_is_asked_in_each_version() -> None:
    assert [each.name for each in in_versions(3, 5, FetchRequest, max_wait_ms=7)] == [
        "Fetch v3",
        "Fetch v4",
        "Fetch v5",
    ]


def test_ids_are_names_and_what_changes_is_left_out() -> None:
    topics = [
        MetadataResponseTopic(error_code=0, name=name, topic_id=topic_id, is_internal=False, partitions=[])
        for name, topic_id in (("orders", b"\1" * 16), ("hidden", b"\2" * 16), ("none", b"\3" * 16))
    ]
    node = MetadataResponseBroker(node_id=1, host="h", port=1, rack=None)
    shown = comparable(MetadataResponse(brokers=[node], cluster_id="c", controller_id=1, topics=topics), IDS)
    assert isinstance(shown, dict) and shown.keys().isdisjoint({"brokers", "cluster_id", "controller_id"})
    assert [each["topic_id"] for each in shown["topics"]] == ["hidden", "a new id", "orders"]


def test_the_order_of_a_list_does_not_count() -> None:
    assert comparable([2, 1, 3], IDS) == comparable((3, 2, 1), IDS)


def test_the_user_may_do_nothing_first_and_never_delete_the_topics() -> None:
    rules = [rule for each in PHASES.values() for rule in each]
    assert not next(iter(PHASES.values()))
    denied = {rule.name for rule in rules if rule.operation.name == "DELETE" and rule.permission is PermissionType.DENY}
    assert denied == {*CREATED, "kafka-cluster"} - set(UNSEEN)


def test_quotas_keep_the_order_in_which_a_broker_lists_them() -> None:
    values = [ValueData(key=key, value=1.0) for key in ("b", "a")]
    assert comparable(values, IDS) == [("b", 1.0), ("a", 1.0)]


def test_what_brokers_ask_can_be_written_in_its_version() -> None:
    asked = [each.name for each in of_brokers(IDS, 7) if encode(each.request, each.version)]
    assert {name.partition(" ")[0] for name in asked} == {
        "AlterPartition",
        "AllocateProducerIds",
        "AssignReplicasToDirs",
        "BrokerHeartbeat",
    }


def test_users_have_a_listener_of_their_own() -> None:
    settings = broker_settings(9092, 9100)
    assert "USERS://127.0.0.1:9100" in settings["advertised.listeners"]
    assert "USERS:SASL_PLAINTEXT" in settings["listener.security.protocol.map"]


def test_texts_are_compared_but_for_those_that_differ_on_purpose() -> None:
    def shown(text: str | None) -> object:
        answer = FindCoordinatorResponse(error_code=31, error_message=text, node_id=-1, host="", port=-1)
        value = comparable(answer, IDS)
        assert isinstance(value, dict)
        return value["error_message"]

    assert [shown(text) for text in (None, "", "Group authorization failed.")] == [
        None,
        "",
        "Group authorization failed.",
    ]
    theirs = (
        "Request Request(processor=4, connectionId=127.0.0.1:1-127.0.0.1:2-4-0, buffer=null) needs ALTER permission."
    )
    assert shown(theirs) == "Cluster authorization failed."
    assert shown(f"{theirs} Or not.") == f"{theirs} Or not."
    assert all(each.reason for each in TEXTS)
