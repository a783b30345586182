"""The metadata of the cluster at one offset of the log, and the changes that consecutive records make to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from moldau.kraft.image.cluster import FENCE, UNFENCE, ClusterDelta, ClusterImage
from moldau.kraft.image.configs import ConfigResource, ConfigsDelta, ConfigsImage, ResourceType
from moldau.kraft.image.finalized_features import FeaturesDelta, FeaturesImage
from moldau.kraft.image.security.acls import AclsDelta, AclsImage
from moldau.kraft.image.security.client_quotas import ClientQuotasDelta, ClientQuotasImage
from moldau.kraft.image.security.delegation_tokens import TokensDelta, TokensImage
from moldau.kraft.image.security.scram_credentials import ScramDelta, ScramImage
from moldau.kraft.image.topics import TopicsDelta, TopicsImage
from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.records import metadata as records


class Provenance(NamedTuple):
    """The point in the log at which an image was made: its end offset, and the epoch and the time of the last
    record."""

    end_offset: int = 0
    epoch: int = 0
    timestamp_ms: int = 0


class MetadataImage(NamedTuple):
    """The metadata of the cluster up to an offset of the log, as an immutable value."""

    provenance: Provenance = Provenance()
    features: FeaturesImage = FeaturesImage()
    cluster: ClusterImage = ClusterImage()
    topics: TopicsImage = TopicsImage()
    configs: ConfigsImage = ConfigsImage()
    next_producer_id: int = 0
    acls: AclsImage = AclsImage()
    scram: ScramImage = ScramImage()
    quotas: ClientQuotasImage = ClientQuotasImage()
    tokens: TokensImage = TokensImage()

    def snapshot_records(self) -> Iterator[object]:
        """Yield the records of a snapshot. Replayed on an empty image they produce this image."""
        yield from self.features.snapshot_records()
        yield from self.cluster.snapshot_records()
        yield from self.topics.snapshot_records()
        yield from self.configs.snapshot_records()
        if self.next_producer_id > 0:
            yield records.ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=self.next_producer_id)
        yield from self.acls.snapshot_records()
        yield from self.scram.snapshot_records()
        yield from self.quotas.snapshot_records()
        yield from self.tokens.snapshot_records()


EMPTY_IMAGE = MetadataImage()


class MetadataDelta:
    """The changes that replayed records make to an image; `apply` makes the new image. The delta of each part has the
    changes of that part."""

    __slots__ = (
        "_replays",
        "acls",
        "cluster",
        "configs",
        "features",
        "image",
        "next_producer_id",
        "quotas",
        "scram",
        "tokens",
        "topics",
    )

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.features = FeaturesDelta(image.features)
        self.cluster = ClusterDelta(image.cluster)
        self.topics = TopicsDelta(image.topics)
        self.configs = ConfigsDelta(image.configs)
        self.next_producer_id = image.next_producer_id
        self.acls = AclsDelta(image.acls)
        self.scram = ScramDelta(image.scram)
        self.quotas = ClientQuotasDelta(image.quotas)
        self.tokens = TokensDelta(image.tokens)
        self._replays = self._table()

    def replay(self, record: object) -> None:
        self._replays[type(record)](record)

    def apply(self, provenance: Provenance) -> MetadataImage:
        return MetadataImage(
            provenance,
            self.features.apply(),
            self.cluster.apply(),
            self.topics.apply(),
            self.configs.apply(),
            self.next_producer_id,
            self.acls.apply(),
            self.scram.apply(),
            self.quotas.apply(),
            self.tokens.apply(),
        )

    def _table(self) -> dict[type[object], Callable[..., None]]:
        return {
            records.FeatureLevelRecord: self.features.replay,
            records.RegisterBrokerRecord: self.cluster.replay_register,
            records.UnregisterBrokerRecord: self._replay_unregister,
            records.BrokerRegistrationChangeRecord: self.cluster.replay_change,
            records.FenceBrokerRecord: self._replay_fence,
            records.UnfenceBrokerRecord: self._replay_unfence,
            records.RegisterControllerRecord: self.cluster.replay_controller,
            records.UnregisterControllerRecord: self.cluster.replay_unregister_controller,
            records.TopicRecord: self.topics.replay_topic,
            records.PartitionRecord: self.topics.replay_partition,
            records.PartitionChangeRecord: self.topics.replay_change,
            records.RemoveTopicRecord: self._replay_remove_topic,
            records.ClearElrRecord: self.topics.replay_clear_elr,
            records.ConfigRecord: self.configs.replay,
            records.ProducerIdsRecord: self._replay_producer_ids,
            records.NoOpRecord: self._ignore,
            # The migration from ZooKeeper ended with 3.9: a 4.x node ignores its record.
            records.ZkMigrationStateRecord: self._ignore,
            records.AccessControlEntryRecord: self.acls.replay,
            records.RemoveAccessControlEntryRecord: self.acls.replay_remove,
            records.UserScramCredentialRecord: self.scram.replay,
            records.RemoveUserScramCredentialRecord: self.scram.replay_remove,
            records.ClientQuotaRecord: self.quotas.replay,
            records.DelegationTokenRecord: self.tokens.replay,
            records.RemoveDelegationTokenRecord: self.tokens.replay_remove,
        }

    def _replay_unregister(self, record: records.UnregisterBrokerRecord) -> None:
        self.cluster.replay_unregister(record.broker_id)

    def _replay_fence(self, record: records.FenceBrokerRecord) -> None:
        """Replay the record of a fenced broker. Releases up to 3.2 wrote it instead of a change of the registration."""
        self._change_fenced(record.id, record.epoch, FENCE)

    def _replay_unfence(self, record: records.UnfenceBrokerRecord) -> None:
        self._change_fenced(record.id, record.epoch, UNFENCE)

    def _change_fenced(self, broker_id: int, epoch: int, fenced: int) -> None:
        change = records.BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch, fenced=fenced)
        self.cluster.replay_change(change)

    def _replay_remove_topic(self, record: records.RemoveTopicRecord) -> None:
        name = self.topics.replay_remove(record)
        self.configs.forget(ConfigResource(ResourceType.TOPIC, name))

    def _replay_producer_ids(self, record: records.ProducerIdsRecord) -> None:
        self.next_producer_id = record.next_producer_id

    def _ignore(self, record: object) -> None:
        """Ignore a record that changes nothing in the image."""
