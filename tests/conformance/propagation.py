"""Whether every node knows a topic as the controller has made it: a client may ask any of them."""

from __future__ import annotations

from bench.client import Client
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

VERSION = 9


def is_known_everywhere(bootstrap: str, topic: str, partitions: int) -> bool:
    """Asked of each address: the topic has so many partitions there, each with a leader; none is none."""
    return all(_led_at(int(address.rpartition(":")[2]), topic) == partitions for address in bootstrap.split(","))


def _led_at(port: int, topic: str) -> int:
    client = Client(port)
    try:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        found = client.ask(request, MetadataResponse, VERSION).topics[0]
        return sum(1 for each in found.partitions if each.leader_id >= 0)
    finally:
        client.close()
