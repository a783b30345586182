"""Three nodes, of which the leaders of a partition die while its records are dead-lettered: the queue has every record
that was rejected, and none that was accepted.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random

import pytest

from moldau.broker.coordinators.share_coordinator import coordinator_key
from moldau.coordinator.share_coordinator.state import ShareKey
from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.messages import incremental_alter_configs as altering
from moldau.protocol.messages import initialize_share_group_state as initialize
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from moldau.protocol.record_reader import records_of
from tests.support.cluster import Cluster
from tests.support.cluster_clients import within
from tests.support.node import Closed, batch
from tests.support.share_consumer import ACCEPT, GROUP, NONE, Consumer

REJECT, GROUP_KIND = 3, 32
QUEUE = "dlq.q"
RECORDS = 60
KILLS = 3
LEVELS = {"metadata.version": 33, "share.version": 2}
"""Of Apache Kafka 4.4."""
ROUNDS_MAX = 200


async def prepare(cluster: Cluster) -> bytes:
    """A topic with records, a queue, and a group that begins at the first record. Returns the id of the topic."""
    for name, level in LEVELS.items():
        update = FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=1)
        answer = await cluster.ask_any(UpdateFeaturesRequest(feature_updates=[update]), 1)
        assert answer.error_code == NONE, answer
    await cluster.create("t")
    await cluster.create(QUEUE, errors_deadletterqueue_group_enable="true")
    setting = altering.AlterableConfig(name="errors.deadletterqueue.topic.name", config_operation=0, value=QUEUE)
    resource = altering.AlterConfigsResource(resource_type=GROUP_KIND, resource_name=GROUP, configs=[setting])
    await cluster.ask_any(altering.IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
    leader = await cluster.connect(await cluster.led("t"))
    for number in range(RECORDS // 4):
        assert (await leader.produce("t", batch(*(f"{number}/{each}" for each in range(4))))).error_code == NONE
    broker = cluster.nodes[1].broker
    assert broker is not None
    topic_id = broker.image.topics.ids["t"]
    data = [initialize.PartitionData(partition=0, state_epoch=1, start_offset=0)]
    topic = initialize.InitializeStateData(topic_id=topic_id, partitions=data)
    request = initialize.InitializeShareGroupStateRequest(group_id=GROUP, topics=[topic])
    find = FindCoordinatorRequest(key_type=2, coordinator_keys=[coordinator_key(ShareKey(GROUP, topic_id, 0))])
    while True:
        (found,) = (await cluster.ask_any(find, 6)).coordinators
        if found.error_code == NONE:
            answer = await (await cluster.connect(found.node_id)).ask(request, 0)
            if answer.results[0].partitions[0].error_code == NONE:
                return topic_id
        await asyncio.sleep(0.2)


def verdict(offset: int) -> int:
    return REJECT if offset % 2 else ACCEPT


async def consume(cluster: Cluster, topic_id: bytes) -> bool:
    """Fetch from the leader, and accept or reject each record. Whether there was any."""
    client = await cluster.connect(await cluster.led("t"))
    try:
        consumer = Consumer(client, topic_id)
        answer = await within(consumer.fetch(wait_ms=300, records_max=8), 10)
        runs = [run for topic in answer.responses for each in topic.partitions for run in each.acquired_records]
        for run in runs:
            kinds = [verdict(offset) for offset in range(run.first_offset, run.last_offset + 1)]
            await within(consumer.acknowledge(run.first_offset, run.last_offset, *kinds), 10)
        return bool(runs)
    finally:
        client.close()


async def offsets_in_queue(cluster: Cluster) -> list[int]:
    client = await cluster.connect(await cluster.led(QUEUE))
    found = await within(client.fetch(QUEUE), 10)
    raw = bytes(found.records or b"")
    records = [each for place, header in iterate_batches(raw) for each in records_of(raw, place, header)]
    return [int(dict(each.headers)["__dlq.errors.offset"] or b"-1") for each in records]


@pytest.mark.parametrize("seed", range(4))
def test_the_queue_has_what_was_rejected_though_leaders_die(seed: int) -> None:
    random = Random(f"{seed}/dead letters")
    rejected = {offset for offset in range(RECORDS) if verdict(offset) == REJECT}

    async def kill(cluster: Cluster) -> None:
        for _ in range(KILLS):
            await asyncio.sleep(random.uniform(0.05, 3))
            node = cluster.nodes[await cluster.led("t")]
            (node.crash if random.random() < 0.5 else node.kill)()
            await asyncio.sleep(random.uniform(0.5, 6))
            node.boot()
            await cluster.settled()

    async def story(cluster: Cluster) -> None:
        await cluster.settled()
        topic_id = await prepare(cluster)
        killing = asyncio.get_running_loop().create_task(kill(cluster))
        for _ in range(ROUNDS_MAX):
            with suppress(Closed, OSError, TimeoutError):
                found = await consume(cluster, topic_id)
                if killing.done() and not found and set(await offsets_in_queue(cluster)) >= rejected:
                    break
            await asyncio.sleep(0.3)
        await killing
        letters = await offsets_in_queue(cluster)
        assert set(letters) == rejected
        assert len(letters) - len(rejected) <= KILLS * len(rejected) // 2, (
            "what a leader wrote is not all written again"
        )

    with Cluster(
        seed,
        broker_session_timeout_ms=3000,
        log_retention_ms=-1,
        share_coordinator_state_topic_num_partitions=1,
        group_share_record_lock_duration_ms=15_000,
    ) as cluster:
        cluster.live(story)
