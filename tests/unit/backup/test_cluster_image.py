"""The metadata of a restored cluster."""

from __future__ import annotations

from moldau.backup.cluster_image import (
    RestorePlacement,
    lowered_min_insync_settings,
    restored_image,
    restored_node_ids,
    restored_quorum,
)
from moldau.kraft.image.configs import ConfigResource, ResourceType
from moldau.kraft.image.metadata_image import MetadataImage, Provenance
from moldau.kraft.image.replay import Replay
from moldau.kraft.image.security.acls import AclsImage
from moldau.kraft.quorum.control_records import QuorumDescription
from moldau.kraft.quorum.voter_set import VoterNode, VoterSet
from moldau.protocol.records.metadata import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from moldau.security.access import ResourceKind
from moldau.security.acl.bindings import AclBinding, PatternType
from moldau.storage.directory.previous_run import UNKNOWN_BROKER_EPOCH

ORDERS, AUDIT = b"o" * 16, b"a" * 16
DIRECTORIES = {node: bytes([node]) * 16 for node in (1, 2, 3, 7)}
ADDRESS = ("old.example.org", 9093)
QUORUM = QuorumDescription(1, VoterSet.from_voters([VoterNode(3, b"x" * 16, (("CONTROLLER", ADDRESS),))]))


def image() -> MetadataImage:
    """Two brokers, and two topics; a reassignment of one partition from 1 to 2 is under way."""
    replay = Replay()
    replay.replay(
        [
            FeatureLevelRecord(name="metadata.version", feature_level=25),
            RegisterBrokerRecord(broker_id=1, incarnation_id=b"i" * 16, broker_epoch=5),
            RegisterBrokerRecord(broker_id=2, incarnation_id=b"j" * 16, broker_epoch=6),
            TopicRecord(name="orders", topic_id=ORDERS),
            partition(ORDERS, 0, [1, 2], leader=2, epoch=4, removing=[1]),
            partition(ORDERS, 1, [2, 1], leader=2, epoch=1),
            TopicRecord(name="audit", topic_id=AUDIT),
            partition(AUDIT, 0, [1], leader=1, epoch=9),
            ConfigRecord(
                resource_type=ResourceType.TOPIC, resource_name="orders", name="min.insync.replicas", value="2"
            ),
            ConfigRecord(resource_type=ResourceType.TOPIC, resource_name="audit", name="retention.ms", value="5"),
            ConfigRecord(resource_type=ResourceType.BROKER, resource_name="", name="log.cleaner.threads", value="3"),
            ProducerIdsRecord(broker_id=1, broker_epoch=5, next_producer_id=1000),
            UserScramCredentialRecord(
                name="ada", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
            ),
        ],
        Provenance(40, 3),
    )
    return replay.image


def partition(
    topic_id: bytes, number: int, replicas: list[int], *, leader: int, epoch: int, removing: list[int] | None = None
) -> PartitionRecord:
    return PartitionRecord(
        partition_id=number,
        topic_id=topic_id,
        replicas=replicas,
        isr=[leader],
        removing_replicas=removing or [],
        leader=leader,
        leader_epoch=epoch,
        partition_epoch=7,
        directories=[b"d" * 16] * len(replicas),
    )


def test_topics_settings_and_users_stay() -> None:
    restored = restored_image(image(), RestorePlacement(), DIRECTORIES, {}, 0)

    assert restored.topics.by_name("orders") is not None and restored.topics.ids["audit"] == AUDIT
    assert restored.scram == image().scram and restored.features == image().features
    assert restored.configs.by_resource == image().configs.by_resource
    assert restored.provenance == Provenance(40, 3)


def test_brokers_are_fenced_in_the_epoch_that_a_node_names_without_a_clean_shutdown() -> None:
    restored = restored_image(image(), RestorePlacement(), DIRECTORIES, {}, 0)

    assert {node: (each.epoch, each.fenced, each.directories) for node, each in restored.cluster.brokers.items()} == {
        node: (UNKNOWN_BROKER_EPOCH, True, (DIRECTORIES[node],)) for node in (1, 2)
    }


def test_every_replica_is_in_sync_and_none_leads() -> None:
    restored = restored_image(image(), RestorePlacement(), DIRECTORIES, {}, 0)

    found = restored.topics.partition("orders", 1)
    assert found is not None and (found.replicas, found.isr, found.leader) == ((2, 1), (2, 1), -1)
    assert found.directories == (DIRECTORIES[2], DIRECTORIES[1])
    moved = restored.topics.partition("orders", 0)
    assert moved is not None and (moved.replicas, moved.removing_replicas) == ((2,), ())


def test_the_next_leader_epoch_is_above_that_of_every_batch() -> None:
    restored = restored_image(image(), RestorePlacement(), DIRECTORIES, {("orders", 0): 6, ("orders", 1): 0}, 0)

    epochs = {number: restored.topics.partition("orders", number) for number in (0, 1)}
    assert {number: found.leader_epoch for number, found in epochs.items() if found is not None} == {0: 6, 1: 1}


def test_no_producer_id_of_a_log_is_given_again() -> None:
    assert restored_image(image(), RestorePlacement(), DIRECTORIES, {}, 3).next_producer_id == 1000
    assert restored_image(image(), RestorePlacement(), DIRECTORIES, {}, 2001).next_producer_id == 2001


def test_one_node_has_everything_and_can_write_it() -> None:
    placement = RestorePlacement(single_node=7)
    restored = restored_image(image(), placement, DIRECTORIES, {}, 0)

    assert {found.replicas for _, _, found in restored.topics.partitions()} == {(7,)}
    assert restored.configs.settings_of(ResourceType.TOPIC, "orders")["min.insync.replicas"] == "1"
    assert lowered_min_insync_settings(image(), placement) == [(ConfigResource(ResourceType.TOPIC, "orders"), "2")]
    assert restored_node_ids(image(), QUORUM, placement) == [7]


def test_some_topics_under_other_names() -> None:
    placement = RestorePlacement(topics=frozenset({"orders"}), renames={"orders": "orders.v1"})
    restored = restored_image(image(), placement, DIRECTORIES, {}, 0)

    assert [topic.name for topic in restored.topics.by_id.values()] == ["orders.v1"]
    assert restored.topics.ids["orders.v1"] == ORDERS and restored.topics.by_name("orders") is None
    assert restored.topics.metric_names.get("orders_v1") == "orders.v1"
    assert restored.configs.settings_of(ResourceType.TOPIC, "orders.v1") == {"min.insync.replicas": "2"}
    assert not restored.configs.settings_of(ResourceType.TOPIC, "audit") and not restored.configs.settings_of(
        ResourceType.TOPIC, "orders"
    )


def test_permissions_follow_a_topic_to_its_new_name() -> None:
    """With allow.everyone.if.no.acl.found=true a topic that no permission names would be open to everyone."""
    literal = AclBinding(ResourceKind.TOPIC, "orders", PatternType.LITERAL, "User:ada", "*", 3, 3)
    prefixed = literal._replace(name="ord", pattern_type=PatternType.PREFIXED)
    group = literal._replace(kind=ResourceKind.GROUP)
    bindings = {bytes([number]) * 16: each for number, each in enumerate((literal, prefixed, group), 1)}
    given = image()
    given = given._replace(acls=AclsImage(given.acls.by_id.with_changes(bindings)))
    restored = restored_image(given, RestorePlacement(renames={"orders": "orders.v1"}), DIRECTORIES, {}, 0)

    assert {*restored.acls.by_id.values()} == {literal._replace(name="orders.v1"), prefixed, group}


def test_voters_have_new_directories_and_the_addresses_that_are_given() -> None:
    assert restored_node_ids(image(), QUORUM, RestorePlacement()) == [1, 2, 3]
    kept = restored_quorum(QUORUM, RestorePlacement(), DIRECTORIES).voters
    assert kept is not None and kept.by_id[3].directory_id == DIRECTORIES[3]
    assert kept.by_id[3].endpoints == (("CONTROLLER", ADDRESS),)
    moved = restored_quorum(QUORUM, RestorePlacement(voters={3: ("new", 1)}), DIRECTORIES).voters
    assert moved is not None and moved.by_id[3].endpoints == (("CONTROLLER", ("new", 1)),)
    alone = restored_quorum(QUORUM, RestorePlacement(single_node=7, voters={7: ("here", 2)}), DIRECTORIES).voters
    assert alone is not None and alone.ids == (7,) and alone.by_id[7].endpoints == (("CONTROLLER", ("here", 2)),)


def test_a_quorum_that_the_configuration_names_stays_so() -> None:
    assert restored_quorum(QuorumDescription(), RestorePlacement(), DIRECTORIES) == QuorumDescription()


def test_a_single_node_is_a_quorum_of_its_own() -> None:
    placement = RestorePlacement(single_node=7, voters={7: ("here", 2)})
    voter = VoterNode(7, DIRECTORIES[7], (("CONTROLLER", ("here", 2)),))
    assert restored_quorum(QuorumDescription(), placement, DIRECTORIES) == QuorumDescription(
        1, VoterSet.from_voters([voter])
    )
