"""The metrics of client quotas on a node."""

from __future__ import annotations

import asyncio

from moldau.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, OpData, RequestEntryData
from tests.support.node import Node, batch, serve_and
from tests.unit.broker.metrics.test_service import LISTENER, scrape

RATES = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")


def test_rates_are_told_for_the_clients_that_share_a_quota() -> None:
    async def story(node: Node) -> None:
        client = await node.connect(client_id="app")
        parts = [EntityData(entity_type="client-id", entity_name=None)]
        by_client = RequestEntryData(entity=parts, ops=[OpData(key=key, value=10000, remove=False) for key in RATES])
        address = [EntityData(entity_type="ip", entity_name=None)]
        change = OpData(key="connection_creation_rate", value=100, remove=False)
        by_address = RequestEntryData(entity=address, ops=[change])
        await client.ask(AlterClientQuotasRequest(entries=[by_client, by_address], validate_only=False), 1)
        await asyncio.sleep(0.1)
        client = await node.connect(client_id="app")
        await client.create("t", 4)
        await client.produce("t", batch("a" * 1000))
        await client.fetch("t")
        samples = await scrape()
        labels = '{user="",client_id="app"}'
        assert samples[f"kafka_server_produce_byte_rate{labels}"] > 100
        assert samples[f"kafka_server_produce_throttle_time{labels}"] == 0
        assert samples[f"kafka_server_fetch_byte_rate{labels}"] > 100
        assert f"kafka_server_request_request_time{labels}" in samples
        assert samples[f"kafka_server_controllermutation_tokens{labels}"] > 100_000
        (rate,) = (value for name, value in samples.items() if "connection_accept_rate" in name)
        assert rate > 0

    serve_and(story, moldau_http_listener=LISTENER)


def test_clients_beyond_the_limit_are_one_series_and_a_long_name_is_shortened() -> None:
    async def story(node: Node) -> None:
        client = await node.connect(client_id="app")
        parts = [EntityData(entity_type="client-id", entity_name=None)]
        ops = [OpData(key="producer_byte_rate", value=1e9, remove=False)]
        entries = [RequestEntryData(entity=parts, ops=ops)]
        await client.ask(AlterClientQuotasRequest(entries=entries, validate_only=False), 1)
        await client.create("t", 1)
        for client_id, size in {"large": 4000, "middle": 2000, "small": 500, "other": 500, "x" * 30_000: 8000}.items():
            client = await node.connect(client_id=client_id)
            await client.produce("t", batch("a" * size))
        samples = await scrape()
        rates = {name: value for name, value in samples.items() if name.startswith("kafka_server_produce_byte_rate{")}
        shown = [name.partition("client_id=")[2] for name in rates]
        assert shown[0].startswith('"xxx') and len(shown[0]) < 400 and "sha256:" in shown[0]
        assert shown[1:] == ['"large"}', '"other"}']
        own, other = rates['kafka_server_produce_byte_rate{user="",client_id="large"}'], list(rates.values())[-1]
        assert own > other / 2 > own / 4, "the smaller clients are counted together"
        assert samples["moldau_series_left_out"] == 3

    serve_and(story, moldau_http_listener=LISTENER, moldau_metrics_series_max=2)
