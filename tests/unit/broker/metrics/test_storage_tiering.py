"""What the metrics say of tiered storage: counts in all and by topic, lags, sizes."""

from __future__ import annotations

import re

from tests.support.node import Node
from tests.support.tiered_node import (
    copied,
    fill,
    is_copied,
    partition_of,
    remote_topic,
    serve_tiered,
    tiered_topic,
    tiering_of,
    until,
)
from tests.unit.broker.metrics.test_service import LISTENER, OF_TIERED_STORAGE, scrape
from tests.unit.broker.tiering.test_reading import read_all

TOPICS = "kafka_server_brokertopicmetrics_"


def test_copies_and_reads_are_counted_in_sum_and_by_topic() -> None:
    async def story(node: Node) -> None:
        client = await remote_topic(node)
        await read_all(client)
        samples = await scrape()
        segments = copied(node)
        size = sum(each.size for each in segments)
        for labels in ("", '{topic="t"}'):
            assert samples[f"{TOPICS}remotecopybytes_total{labels}"] == size
            assert samples[f"{TOPICS}remotecopyrequests_total{labels}"] == len(segments)
            assert samples[f"{TOPICS}remotefetchbytes_total{labels}"] >= size
            assert samples[f"{TOPICS}remotefetcherrors_total{labels}"] == 0
            assert samples[f"{TOPICS}remotelogsizebytes{labels}"] == size
            assert samples[f"{TOPICS}remotelogmetadatacount{labels}"] == len(segments)
            assert samples[f"{TOPICS}remotecopylagsegments{labels}"] == 0
        names = {re.sub(r"_(sum|count)$", "", name.partition("{")[0]) for name in samples}
        assert names >= OF_TIERED_STORAGE
        reads = samples[f"{TOPICS}remotefetchrequests_total"]
        assert reads > 0
        assert samples["kafka_log_remote_remotelogmanager_remotelogreaderfetchrateandtimems_count"] == reads
        assert samples["kafka_log_remote_remotestoragethreadpool_remotelogreaderavgidlepercent"] == 1
        assert samples["moldau_remote_log_metadata_memory_bytes"] > 0
        partition_of(node).delete_records_before(segments[1].start_offset)
        await until(lambda: len(copied(node)) < len(segments), "a segment is deleted")
        deleted = (await scrape())[f'{TOPICS}remotedeleterequests_total{{topic="t"}}']
        assert deleted >= 1

    serve_tiered(story, moldau_http_listener=LISTENER)


def test_a_storage_that_is_away_shows_as_errors_and_as_a_lag() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        node.host.storage_faults.is_away = True
        await tiered_topic(client)
        await fill(client)
        await until(lambda: tiering_of(node).copier.failures > 1, "copies fail")
        samples = await scrape()
        waiting = partition_of(node).log.segments[:-1]
        assert samples[f"{TOPICS}remotecopyerrors_total"] >= 1
        assert samples[f'{TOPICS}remotecopylagsegments{{topic="t"}}'] == len(waiting)
        assert samples[f"{TOPICS}remotecopylagbytes"] == sum(each.size for each in waiting)
        node.host.storage_faults.is_away = False
        await until(lambda: is_copied(node), "all rolled segments are copied")
        assert (await scrape())[f"{TOPICS}remotecopylagbytes"] == 0

    serve_tiered(story, moldau_http_listener=LISTENER)
