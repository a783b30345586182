"""What records make of an image, and what an image says in a snapshot."""

from __future__ import annotations

from copy import copy

from moldau.kraft.image.configs import ConfigResource, ResourceType
from moldau.kraft.image.metadata_image import EMPTY_IMAGE, MetadataDelta
from moldau.kraft.image.security.acls import AclsImage
from moldau.kraft.image.security.client_quotas import ClientQuotasImage
from moldau.kraft.image.security.delegation_tokens import TokensImage
from moldau.kraft.image.security.scram_credentials import ScramImage
from moldau.kraft.image.topics import NO_LEADER
from moldau.kraft.record_frame import record_classes
from moldau.protocol.records import metadata as records
from moldau.protocol.schema import fields_of
from tests.unit.kraft.image.images import broker, config, everything, image_of, provenance, topic, uuid

TRANSACTIONS = {
    records.BeginTransactionRecord,
    records.EndTransactionRecord,
    records.AbortTransactionRecord,
}


def test_every_type_of_record_is_replayed() -> None:
    """The table of replays and the declared records are the same list; transactions are the reader's business."""
    assert set(MetadataDelta(EMPTY_IMAGE)._replays) == set(record_classes().values()) - TRANSACTIONS


def test_a_snapshot_makes_the_same_image() -> None:
    image = image_of(everything())
    again = image_of(image.snapshot_records())
    assert again == image
    assert [repr(record) for record in again.snapshot_records()] == [
        repr(record) for record in image.snapshot_records()
    ]


def test_a_snapshot_says_first_how_to_read_it() -> None:
    first = next(image_of(everything()).snapshot_records())
    assert first == records.FeatureLevelRecord(name="metadata.version", feature_level=30)


def test_a_broker_is_what_its_last_records_say() -> None:
    image = image_of(everything())
    assert sorted(image.cluster.brokers) == [1, 2]
    first, second = image.cluster.brokers[1], image.cluster.brokers[2]
    assert (first.fenced, first.endpoints["PLAINTEXT"].host, first.rack) == (False, "h", "r1")
    assert (second.fenced, second.directories) == (True, (uuid(1), uuid(2)))
    assert image.cluster.is_active(1) and not image.cluster.is_active(2) and not image.cluster.is_active(9)


def test_a_partition_change_leaves_what_it_does_not_name() -> None:
    image = image_of(everything())
    before = image.topics.partition("orders", 1)
    change = records.PartitionChangeRecord(partition_id=1, topic_id=uuid(201), isr=[2])
    after = image_of([change], image).topics.partition("orders", 1)
    assert before is not None and after == before._replace(partition_epoch=before.partition_epoch + 1)


def test_naming_a_leader_begins_an_epoch_even_where_it_is_the_same() -> None:
    image = image_of(topic("orders", 201))
    for leader, epoch in ((1, 1), (NO_LEADER, 2), (2, 3)):
        change = records.PartitionChangeRecord(partition_id=0, topic_id=uuid(201), leader=leader)
        image = image_of([change], image)
        partition = image.topics.partition("orders", 0)
        assert partition is not None
        assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (leader, epoch, epoch)


def test_a_topic_made_and_changed_in_one_run_of_records() -> None:
    change = records.PartitionChangeRecord(partition_id=1, topic_id=uuid(7), isr=[2], leader=2)
    image = image_of([*topic("a", 7, 2), change])
    found = image.topics.by_name("a")
    assert found is not None and [found.partitions[index].leader for index in (0, 1)] == [1, 2]


def test_a_topic_deleted_and_made_again_has_nothing_of_the_old_one() -> None:
    image = image_of([*topic("a.b", 7, 3), config("a.b", "retention.ms", "5")])
    delta = MetadataDelta(image)
    for record in [records.RemoveTopicRecord(topic_id=uuid(7)), *topic("a.b", 8)]:
        delta.replay(record)
    after = delta.apply(provenance(9))
    assert [gone.name for gone in delta.topics.deleted.values()] == ["a.b"]
    assert list(delta.topics.changed) == [uuid(8)]
    found = after.topics.by_name("a.b")
    assert found is not None and (found.id, len(found.partitions)) == (uuid(8), 1)
    assert after.topics.metric_names["a_b"] == "a.b"
    assert not after.configs.settings_of(ResourceType.TOPIC, "a.b")
    old = image.topics.by_name("a.b")
    assert old is not None and len(old.partitions) == 3, "the old image stays"


def test_a_topic_made_and_deleted_in_one_run_leaves_nothing() -> None:
    delta = MetadataDelta(EMPTY_IMAGE)
    for record in [*topic("a_b", 7), config("a_b", "x", "1"), records.RemoveTopicRecord(topic_id=uuid(7))]:
        delta.replay(record)
    assert delta.apply(EMPTY_IMAGE.provenance) == EMPTY_IMAGE
    assert not delta.topics.deleted and not delta.topics.changed


def test_settings_come_and_go() -> None:
    image = image_of([config("a", "x", "1"), config("a", "y", "2")])
    assert image.configs.settings_of(2, "a") == {"x": "1", "y": "2"}
    image = image_of([config("a", "x", None)], image)
    assert image.configs.settings_of(2, "a") == {"y": "2"}
    image = image_of([config("a", "y", None)], image)
    assert ConfigResource(2, "a") not in image.configs.by_resource


def test_a_feature_at_level_zero_is_off() -> None:
    on = records.FeatureLevelRecord(name="group.version", feature_level=1)
    off = records.FeatureLevelRecord(name="group.version", feature_level=0)
    assert image_of([on]).features.levels == {"group.version": 1}
    assert image_of([off], image_of([on])).features.levels == {}


def test_the_eligible_leaders_of_a_topic_are_cleared() -> None:
    image = image_of([records.ClearElrRecord(topic_name="orders")], image_of(everything()))
    partition = image.topics.partition("orders", 2)
    assert partition is not None and not partition.eligible_leader_replicas and not partition.last_known_elr


def test_records_of_security_are_taken_away_by_their_keys() -> None:
    image = image_of(everything())
    domains = (image.acls.by_id, image.scram.credentials, image.quotas.by_entity, image.tokens.by_id)
    assert [len(each) for each in domains] == [1, 1, 1, 1]
    removals: list[object] = [
        records.ClientQuotaRecord(
            entity=[records.EntityData(entity_type="user", entity_name=None)], key="rate", value=0.0, remove=True
        ),
        records.RemoveAccessControlEntryRecord(id=uuid(301)),
        records.RemoveUserScramCredentialRecord(name="a", mechanism=1),
        records.RemoveDelegationTokenRecord(token_id="id"),
    ]
    after = image_of(removals, image)
    assert after.acls == AclsImage() and after.scram == ScramImage()
    assert after.quotas == ClientQuotasImage() and after.tokens == TokensImage()


def test_an_acl_that_is_removed_takes_no_other_with_it() -> None:
    acls = [record for record in everything() if isinstance(record, records.AccessControlEntryRecord)]
    twin = copy(acls[0])
    twin.id, twin.operation = uuid(302), 4
    image = image_of([*acls, twin])
    left = image_of([records.RemoveAccessControlEntryRecord(id=acls[0].id)], image)
    assert [binding.operation for binding in left.acls.by_id.values()] == [4]


def test_an_unregistered_broker_is_gone() -> None:
    image = image_of([broker(4)])
    assert 4 in image.cluster.brokers
    assert not image_of([records.UnregisterBrokerRecord(broker_id=4, broker_epoch=5)], image).cluster.brokers


def test_a_partition_keeps_every_field_of_its_record() -> None:
    record = records.PartitionRecord(
        partition_id=4,
        topic_id=uuid(7),
        replicas=[1, 2, 3],
        isr=[1],
        removing_replicas=[2],
        adding_replicas=[3],
        leader=1,
        leader_recovery_state=1,
        leader_epoch=5,
        partition_epoch=6,
        directories=[uuid(1), uuid(2), uuid(3)],
        eligible_leader_replicas=[2],
        last_known_elr=[3],
    )
    assert all(getattr(record, field.name) for field in fields_of(records.PartitionRecord)), "no field is at its zero"
    image = image_of([records.TopicRecord(name="t", topic_id=uuid(7)), record])
    assert list(image.snapshot_records())[1] == record


def test_what_partitions_have_in_common_is_in_memory_once() -> None:
    replicas = [1, 2, 3]
    made = [
        records.PartitionRecord(
            partition_id=index,
            topic_id=uuid(201),
            replicas=list(replicas),
            isr=list(replicas),
            leader=1,
            directories=[uuid(1), uuid(2), uuid(3)],
        )
        for index in range(2)
    ]
    image = image_of([records.TopicRecord(name="orders", topic_id=uuid(201)), *made])
    first, second = (image.topics.partition("orders", index) for index in range(2))
    assert first is not None and second is not None
    assert first.replicas is first.isr is second.replicas and first.directories is second.directories
