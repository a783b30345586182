"""Runs the commands of a controller's transcript and writes down its records and replies.

> register 1 rack=a                  a broker registers (again, with another incarnation)
> heartbeat 1 [fence|shutdown|behind]
> live 60000                         time passes, while brokers that are not fenced report
> wait 9000                          time passes, and the controller is asked what it brings
> create NAME partitions=3 factor=2 [assign=1,2;2,3] [config=retention.ms:5] [validate]
> delete NAME...   > delete-id NAME...   > grow NAME 5 [assign=1;2] [validate]
> set topic:NAME retention.ms=5   > unset topic:NAME retention.ms
> append|subtract topic:NAME cleanup.policy=compact   > replace topic:NAME [retention.ms=5]
> producer-ids 1
> in-sync BROKER TOPIC INDEX 1,2,3 [leader_epoch=] [partition_epoch=] [member_epoch=] [recovery=1]
> elect preferred|unclean [NAME INDEX...]
> move NAME INDEX 2,3 [keep]         replicas; `cancel` in place of them gives the move up
> moves                              what is on the move
> unregister 3   > feature NAME 1 [type=2] [validate]
> failover                           a new controller takes over, with the log as it is
> racks-apart                        the same, with moldau.replicas.share.rack=false
> topics   > brokers                 the image
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from random import Random

from moldau.kraft.controller.controller import Controller
from moldau.kraft.controller.decision import ApiError, Decision
from moldau.kraft.controller.settings import ControllerSettings
from moldau.kraft.features import SUPPORTED_FEATURES
from moldau.kraft.image.configs import ConfigResource, ResourceType
from moldau.kraft.image.metadata_image import Provenance
from moldau.kraft.image.replay import Replay
from moldau.kraft.image.topics import PartitionRegistration
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages import alter_configs as replacing
from moldau.protocol.messages import alter_partition as altering
from moldau.protocol.messages import alter_partition_reassignments as moving
from moldau.protocol.messages import assign_replicas_to_dirs as assigning
from moldau.protocol.messages import broker_registration
from moldau.protocol.messages import create_partitions as growing
from moldau.protocol.messages import create_topics as creating
from moldau.protocol.messages import delete_topics as deleting
from moldau.protocol.messages import elect_leaders as electing
from moldau.protocol.messages import incremental_alter_configs as incremental
from moldau.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from moldau.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from moldau.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from moldau.protocol.messages.unregister_broker import UnregisterBrokerRequest
from moldau.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from moldau.protocol.records.metadata import FeatureLevelRecord, RegisterControllerRecord
from moldau.protocol.schema import fields_of
from tests.support.transcripts import Command

DIRECTORY_OF = 1000
"""Broker n keeps its replicas in the directory with this number plus n."""
TOPIC_IDS = 2000
"""The first topic has the id after this one."""
HEARTBEAT_MS = 4000
LEFT_OUT = ("end_points", "features")
"""The fields that are the same in every registration, and left out."""
RESOURCES = {"topic": ResourceType.TOPIC, "broker": ResourceType.BROKER, "group": ResourceType.GROUP}


def numbered(text: str) -> list[bytes]:
    return [int(number).to_bytes(16, "big") for number in text.split(",") if number]


class FewRules:
    """A catalogue of a few settings; it checks the values of one of them."""

    def refusal(
        self, resource: ConfigResource, settings: Mapping[str, str], existing: Mapping[str, str]
    ) -> ApiError | None:
        for name, value in settings.items():
            if name not in ("retention.ms", "cleanup.policy", "min.insync.replicas", "unclean.leader.election.enable"):
                return ApiError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
            if name == "retention.ms" and not value.isdigit():
                return ApiError(ErrorCode.INVALID_CONFIG, f"Invalid value {value} for configuration {name}")
        return None

    def is_list(self, resource_type: int, name: str) -> bool:
        return name == "cleanup.policy"

    def default_of(self, resource: ConfigResource, name: str) -> str:
        return "delete" if name == "cleanup.policy" else ""

    def describe_topic(self, settings: Mapping[str, str]) -> Sequence[creating.CreatableTopicConfigs]:
        return []


SETTINGS = ControllerSettings(
    cluster_id="cluster",
    config_rules=FewRules(),
    random=Random(7),
    new_uuid=lambda: TOPIC_IDS.to_bytes(16, "big"),
    metadata_max_idle_interval_ms=0,
)
"""The settings of tests of one part of the controller."""


class Quorum:
    """A quorum whose voters are all known."""

    def __init__(self) -> None:
        self.kraft_version = 0

    def refusal_of_version(self, version: int) -> str | None:
        return None


class ControllerScribe:
    """Every decision is appended at once; offsets are those a real log would have, and ids count from 1."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.offset = 0
        self.ids = TOPIC_IDS
        self.replay = Replay()
        self.quorum = Quorum()
        self.settings = SETTINGS._replace(random=Random(7), new_uuid=self.new_id, quorum=self.quorum)
        self.controller = Controller(self.replay, self.settings, 0)
        self.carried_out([*self.activation()])

    def new_id(self) -> bytes:
        self.ids += 1
        return self.ids.to_bytes(16, "big")

    def activation(self) -> list[Decision]:
        bootstrap = [FeatureLevelRecord(name="metadata.version", feature_level=30)]
        return self.controller.activate(
            bootstrap, RegisterControllerRecord(controller_id=0, incarnation_id=bytes(16), zk_migration_ready=False)
        )

    def respond(self, command: Command) -> list[str]:
        method = getattr(self, "do_" + command.name.replace("-", "_"))
        return list(method(command))

    def carried_out(self, decisions: Sequence[Decision]) -> Iterator[str]:
        return iter([line for decision in decisions for line in self.carry_out(decision)])

    def carry_out(self, decision: Decision) -> Iterator[str]:
        if decision.kraft_version is not None:
            self.quorum.kraft_version = decision.kraft_version
            yield f"the quorum writes kraft.version {decision.kraft_version}"
        for records in filter(None, decision.batches()):
            self.offset += len(records)
            self.controller.replay(records, Provenance(self.offset, 1, self.now_ms), self.now_ms)
            yield from (f"write {told(record)}" for record in records)
        if decision.reply is not None:
            yield f"reply {told(decision.reply)}"

    def ask(self, request: object) -> Iterator[str]:
        return self.carry_out(self.controller.step(request, self.now_ms))

    # Brokers

    def do_register(self, command: Command) -> Iterator[str]:
        broker_id = int(command.arguments[0])
        yield from self.ask(
            broker_registration.BrokerRegistrationRequest(
                broker_id=broker_id,
                cluster_id=command.options.get("cluster", "cluster"),
                incarnation_id=command.int("incarnation", 1).to_bytes(16, "big"),
                listeners=[broker_registration.Listener(name="PLAINTEXT", host="h", port=9092, security_protocol=0)],
                features=[
                    broker_registration.Feature(
                        name=name,
                        min_supported_version=first,
                        max_supported_version=command.int("metadata_version", last),
                    )
                    for name, (first, last) in SUPPORTED_FEATURES.items()
                    if last > 0 and name != command.options.get("without")
                ],
                rack=command.options.get("rack"),
                previous_broker_epoch=command.int("previous", -1),
                log_dirs=[number.to_bytes(16, "big") for number in directories(command, broker_id)],
            )
        )

    def do_heartbeat(self, command: Command) -> Iterator[str]:
        broker_id = int(command.arguments[0])
        broker = self.controller.image.cluster.brokers.get(broker_id)
        epoch = command.int("epoch", -1 if broker is None else broker.epoch)
        wishes = command.arguments[1:]
        yield from self.ask(
            BrokerHeartbeatRequest(
                broker_id=broker_id,
                broker_epoch=epoch,
                current_metadata_offset=-1 if "behind" in wishes else self.offset,
                want_fence="fence" in wishes,
                want_shut_down="shutdown" in wishes,
                offline_log_dirs=numbered(command.options.get("offline", "")),
            )
        )

    def do_assign(self, command: Command) -> Iterator[str]:
        """assign BROKER TOPIC INDEX DIRECTORY"""
        broker_id, index, directory = (int(command.arguments[at]) for at in (0, 2, 3))
        broker = self.controller.image.cluster.brokers.get(broker_id)
        topic_id = self.controller.image.topics.ids.get(command.arguments[1]) or bytes(16)
        topic = assigning.TopicData(topic_id=topic_id, partitions=[assigning.PartitionData(partition_index=index)])
        yield from self.ask(
            assigning.AssignReplicasToDirsRequest(
                broker_id=broker_id,
                broker_epoch=command.int("epoch", -1 if broker is None else broker.epoch),
                directories=[assigning.DirectoryData(id=directory.to_bytes(16, "big"), topics=[topic])],
            )
        )

    def do_in_sync(self, command: Command) -> Iterator[str]:
        """The broker asks for another in-sync set; the epochs are the right ones unless the command says others."""
        image = self.controller.image
        broker_id, index = int(command.arguments[0]), int(command.arguments[2])
        topic = image.topics.by_name(command.arguments[1])
        assert topic is not None
        partition = topic.partitions[index]
        known = image.cluster.brokers
        members = [int(each) for each in command.arguments[3].split(",")]
        data = altering.PartitionData(
            partition_index=index,
            leader_epoch=command.int("leader_epoch", partition.leader_epoch),
            partition_epoch=command.int("partition_epoch", partition.partition_epoch),
            leader_recovery_state=command.int("recovery", 0),
            new_isr_with_epochs=[
                altering.BrokerState(
                    broker_id=each,
                    broker_epoch=command.int("member_epoch", known[each].epoch if each in known else -1),
                )
                for each in members
            ],
        )
        yield from self.ask(
            altering.AlterPartitionRequest(
                broker_id=broker_id,
                broker_epoch=known[broker_id].epoch,
                topics=[altering.TopicData(topic_id=topic.id, partitions=[data])],
            )
        )

    def do_wait(self, command: Command) -> Iterator[str]:
        self.now_ms += int(command.arguments[0])
        for decision in self.controller.tick(self.now_ms):
            yield from self.carry_out(decision)

    def do_live(self, command: Command) -> Iterator[str]:
        end_ms = self.now_ms + int(command.arguments[0])
        while self.now_ms < end_ms:
            for broker in self.controller.image.cluster.brokers.values():
                if not broker.fenced:
                    list(self.do_heartbeat(Command(f"heartbeat {broker.id}")))
            yield from self.do_wait(Command(f"wait {min(HEARTBEAT_MS, end_ms - self.now_ms)}"))

    def do_failover(self, command: Command) -> Iterator[str]:
        self.controller = Controller(self.replay, self.settings, self.now_ms)
        return self.carried_out(self.activation())

    def do_racks_apart(self, command: Command) -> Iterator[str]:
        self.settings = self.settings._replace(replicas_share_rack=False)
        return self.do_failover(command)

    def do_replay(self, command: Command) -> Iterator[str]:
        assert command.arguments[0] == "unfence"
        broker = self.controller.image.cluster.brokers[int(command.arguments[1])]
        registration = broker._replace(fenced=False, in_controlled_shutdown=False).to_record()
        return self.carry_out(Decision([registration]))

    def do_producer_ids(self, command: Command) -> Iterator[str]:
        broker_id = int(command.arguments[0])
        broker = self.controller.image.cluster.brokers.get(broker_id)
        epoch = command.int("epoch", -1 if broker is None else broker.epoch)
        return self.ask(AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=epoch))

    def do_elect(self, command: Command) -> Iterator[str]:
        kind, *where = command.arguments
        topics = None
        if where:
            topics = [electing.TopicPartitions(topic=where[0], partitions=[int(index) for index in where[1:]])]
        number = {"preferred": 0, "unclean": 1}.get(kind, 7)
        return self.ask(electing.ElectLeadersRequest(election_type=number, topic_partitions=topics))

    def do_move(self, command: Command) -> Iterator[str]:
        name, index, target = command.arguments[:3]
        replicas = None if target == "cancel" else [int(each) for each in target.split(",") if each != "none"]
        partition = moving.ReassignablePartition(partition_index=int(index), replicas=replicas)
        return self.ask(
            moving.AlterPartitionReassignmentsRequest(
                allow_replication_factor_change="keep" not in command.arguments,
                topics=[moving.ReassignableTopic(name=name, partitions=[partition])],
            )
        )

    def do_moves(self, command: Command) -> Iterator[str]:
        return self.ask(ListPartitionReassignmentsRequest(topics=None))

    def do_unregister(self, command: Command) -> Iterator[str]:
        return self.ask(UnregisterBrokerRequest(broker_id=int(command.arguments[0])))

    def do_feature(self, command: Command) -> Iterator[str]:
        name, level = command.arguments[:2]
        update = FeatureUpdateKey(feature=name, max_version_level=int(level), upgrade_type=command.int("type", 1))
        is_validation = "validate" in command.arguments
        return self.ask(UpdateFeaturesRequest(feature_updates=[update], validate_only=is_validation))

    # Topics

    def do_create(self, command: Command) -> Iterator[str]:
        names = [word for word in command.arguments if word != "validate"] or [""]
        configs = dict(pair.split(":") for pair in command.options.get("config", "").split(",") if pair)
        topics = [
            creating.CreatableTopic(
                name=name.replace("%20", " "),
                num_partitions=command.int("partitions", -1),
                replication_factor=command.int("factor", -1),
                assignments=[
                    creating.CreatableReplicaAssignment(partition_index=command.int("first", 0) + index, broker_ids=ids)
                    for index, ids in enumerate(assignments(command) or [])
                ],
                configs=[creating.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
            )
            for name in names
        ]
        return self.ask(creating.CreateTopicsRequest(topics=topics, validate_only="validate" in command.arguments))

    def do_delete(self, command: Command) -> Iterator[str]:
        states = [deleting.DeleteTopicState(name=name, topic_id=bytes(16)) for name in command.arguments]
        states += [
            deleting.DeleteTopicState(name=None, topic_id=int(number).to_bytes(16, "big"))
            for number in command.options.get("id", "").split(",")
            if number
        ]
        return self.ask(deleting.DeleteTopicsRequest(topics=states, timeout_ms=1000))

    def do_grow(self, command: Command) -> Iterator[str]:
        name, count = command.arguments[:2]
        chosen = assignments(command)
        topic = growing.CreatePartitionsTopic(
            name=name,
            count=int(count),
            assignments=None
            if chosen is None
            else [growing.CreatePartitionsAssignment(broker_ids=broker_ids) for broker_ids in chosen],
        )
        is_validation = "validate" in command.arguments
        return self.ask(growing.CreatePartitionsRequest(topics=[topic], timeout_ms=1000, validate_only=is_validation))

    # Settings

    def do_set(self, command: Command) -> Iterator[str]:
        return self.change(command, 0)

    def do_unset(self, command: Command) -> Iterator[str]:
        return self.change(command, 1)

    def do_append(self, command: Command) -> Iterator[str]:
        return self.change(command, 2)

    def do_subtract(self, command: Command) -> Iterator[str]:
        return self.change(command, 3)

    def change(self, command: Command, operation: int) -> Iterator[str]:
        kind, name = command.arguments[0].split(":")
        pairs = {**command.options, **dict.fromkeys(command.arguments[1:])}
        resource = incremental.AlterConfigsResource(
            resource_type=RESOURCES[kind],
            resource_name=name,
            configs=[
                incremental.AlterableConfig(name=key, config_operation=operation, value=value)
                for key, value in pairs.items()
            ],
        )
        return self.ask(incremental.IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))

    def do_replace(self, command: Command) -> Iterator[str]:
        kind, name = command.arguments[0].split(":")
        resource = replacing.AlterConfigsResource(
            resource_type=RESOURCES[kind],
            resource_name=name,
            configs=[replacing.AlterableConfig(name=key, value=value) for key, value in command.options.items()],
        )
        return self.ask(replacing.AlterConfigsRequest(resources=[resource], validate_only=False))

    # The image

    def do_topics(self, command: Command) -> Iterator[str]:
        for topic, partition_id, partition in self.controller.image.topics.partitions():
            yield (
                f"{topic.name}-{partition_id} replicas={list(partition.replicas)} isr={list(partition.isr)}"
                f" leader={partition.leader} leader_epoch={partition.leader_epoch} epoch={partition.partition_epoch}"
                + "".join(f" {name}={list(ids)}" for name, ids in rarities(partition) if ids)
            )

    def do_brokers(self, command: Command) -> Iterator[str]:
        for broker in self.controller.image.cluster.brokers.values():
            shutdown = " in_controlled_shutdown" if broker.in_controlled_shutdown else ""
            yield f"{broker.id} epoch={broker.epoch} {'fenced' if broker.fenced else 'unfenced'}{shutdown}"


def rarities(partition: PartitionRegistration) -> list[tuple[str, Sequence[int]]]:
    return [
        ("adding", partition.adding_replicas),
        ("removing", partition.removing_replicas),
        ("eligible", partition.eligible_leader_replicas),
        ("last_known", partition.last_known_elr),
    ]


def directories(command: Command, broker_id: int) -> list[int]:
    words = command.options.get("directories", str(DIRECTORY_OF + broker_id))
    return [int(word) for word in words.split(",") if word]


def assignments(command: Command) -> list[list[int]] | None:
    text = command.options.get("assign")
    if text is None:
        return None
    return [[int(broker_id) for broker_id in part.split(",") if broker_id] for part in text.split(";")]


def told(value: object) -> str:
    """A message or record without the fields that have their defaults; ids as numbers."""
    if isinstance(value, bytes):
        return f"#{int.from_bytes(value, 'big')}"
    if isinstance(value, list):
        return f"[{', '.join(told(item) for item in value)}]"
    if isinstance(value, (int, str)) or value is None:
        return repr(value) if isinstance(value, str) else str(value)
    name = type(value).__name__.removesuffix("Record").removesuffix("Response")
    fields = []
    for field in fields_of(type(value)):
        content = getattr(value, field.name)
        if (
            field.name in LEFT_OUT
            or content == field.default
            or (content in (None, 0, "") and content is not False)
            or (content == [] and field.default is not None)
        ):
            continue
        is_error = field.name == "error_code"
        fields.append(f"{field.name}={ErrorCode(content).name if is_error else told(content)}")
    return f"{name}({' '.join(fields)})"
