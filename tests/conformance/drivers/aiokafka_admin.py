"""aiokafka's admin client as driver operations."""

# mypy: disable-error-code="import-untyped,no-any-return"

from __future__ import annotations

from collections.abc import Iterable

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError

from moldau.protocol.errors import ErrorCode
from tests.conformance.outcome import Refused, Unavailable

_CODES = frozenset(int(code) for code in ErrorCode)
_SOURCES = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
}


def refusal(error: KafkaError) -> Refused:
    code = getattr(error, "errno", None)
    name = ErrorCode(code).name if isinstance(code, int) and code in _CODES else type(error).__name__
    return Refused(name, str(error))


def check(code: int) -> None:
    if code:
        raise Refused(ErrorCode(code).name)


def check_rows(rows: Iterable[tuple[object, ...]]) -> None:
    """Answers are tuples with the name first and the error code second."""
    for row in rows:
        code = row[1]
        assert isinstance(code, int)
        check(code)


class AiokafkaAdmin:
    """The admin client starts with the first operation, on the loop that runs it."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._started: AIOKafkaAdminClient | None = None

    async def _admin(self) -> AIOKafkaAdminClient:
        if self._started is None:
            self._started = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap, request_timeout_ms=60_000)
            await self._started.start()
        return self._started

    async def create_topic(self, topic: str, partitions: int, replicas: int, configs: dict[str, str]) -> object:
        if partitions == -1:
            raise Unavailable("aiokafka wants counts of partitions and replicas")
        wanted = NewTopic(topic, partitions, replicas, topic_configs=configs)
        check_rows((await (await self._admin()).create_topics([wanted])).topic_errors)
        return None

    async def delete_topic(self, topic: str) -> object:
        check_rows((await (await self._admin()).delete_topics([topic])).topic_error_codes)
        return None

    async def list_topics(self) -> object:
        return sorted(await (await self._admin()).list_topics())

    async def describe_topic(self, topic: str) -> object:
        (found,) = await (await self._admin()).describe_topics([topic])
        check(found["error_code"])
        return {
            "internal": found["is_internal"],
            "partitions": [
                {
                    "id": partition["partition"],
                    "leader": partition["leader"],
                    "replicas": partition["replicas"],
                    "isr": partition["isr"],
                }
                for partition in sorted(found["partitions"], key=lambda each: each["partition"])
            ],
        }

    async def create_partitions(self, topic: str, total: int) -> object:
        answer = await (await self._admin()).create_partitions({topic: NewPartitions(total)})
        check_rows(answer.topic_errors)
        return None

    async def delete_records(self, topic: str, partition: int, before_offset: int) -> object:
        place = TopicPartition(topic, partition)
        return (await (await self._admin()).delete_records({place: RecordsToDelete(before_offset)}))[place]

    async def describe_configs(self, kind: str, name: str) -> object:
        if kind not in ("topic", "broker"):
            raise Unavailable(f"aiokafka describes no configuration of a {kind}")
        resource = ConfigResource(ConfigResourceType[kind.upper()], name)
        (answer,) = await (await self._admin()).describe_configs([resource])
        ((code, _, _, _, entries),) = answer.resources
        check(code)
        return {
            key: {"value": value, "source": _SOURCES[source], "read only": read_only, "sensitive": sensitive}
            for key, value, read_only, source, sensitive, _ in entries
        }

    async def alter_configs(self, kind: str, name: str, configs: dict[str, str]) -> object:
        resource = ConfigResource(ConfigResourceType[kind.upper()], name, configs)
        (answer,) = await (await self._admin()).alter_configs([resource])
        for code, _, _, _ in answer.resources:
            check(code)
        return None

    async def describe_cluster(self) -> object:
        found = await (await self._admin()).describe_cluster()
        return {
            "nodes": sorted(node["node_id"] for node in found["brokers"]),
            "controller": found["controller_id"],
            "has cluster id": bool(found["cluster_id"]),
        }

    async def list_groups(self) -> object:
        return sorted(row[0] for row in await (await self._admin()).list_consumer_groups())

    async def describe_group(self, group: str) -> object:
        (answer,) = await (await self._admin()).describe_consumer_groups([group])
        (found,) = answer.groups
        check(found[0])
        return {
            "state": found[2].upper(),
            "protocol type": found[3],
            "protocol": found[4],
            "members": [{} for _ in found[5]],
        }

    async def fetch_offsets(self, group: str) -> object:
        found = await (await self._admin()).list_consumer_group_offsets(group)
        return [[place.topic, place.partition, offset.offset] for place, offset in found.items()]

    async def alter_offsets(self, group: str, offsets: list[tuple[str, int, int]]) -> object:
        """A consumer that has joined nothing commits, as a simple consumer does."""
        consumer = AIOKafkaConsumer(bootstrap_servers=self._bootstrap, group_id=group, enable_auto_commit=False)
        places = {TopicPartition(topic, partition): offset for topic, partition, offset in offsets}
        consumer.assign(list(places))
        await consumer.start()
        try:
            await consumer.commit(places)
        finally:
            await consumer.stop()
        return None

    async def list_offsets(self, topic: str, partition: int, at: str | int) -> object:
        place = TopicPartition(topic, partition)
        if at == "max-timestamp":
            raise Unavailable("aiokafka has no look-up of the greatest timestamp")
        isolation = "read_committed" if at == "last-stable" else "read_uncommitted"
        consumer = AIOKafkaConsumer(bootstrap_servers=self._bootstrap, isolation_level=isolation)
        await consumer.start()
        try:
            if at == "earliest":
                return (await consumer.beginning_offsets([place]))[place]
            if at in ("latest", "last-stable"):
                return (await consumer.end_offsets([place]))[place]
            found = (await consumer.offsets_for_times({place: at}))[place]
            return -1 if found is None else found.offset
        finally:
            await consumer.stop()
