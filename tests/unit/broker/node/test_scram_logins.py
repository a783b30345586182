"""SCRAM on the listeners of whole simulated nodes: clients, brokers and controllers log in with it."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.broker.cli.scram_credentials import scram_record
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.security.principal import Principal
from moldau.security.sasl.scram.credential import ScramMechanism
from tests.support.cluster import Cluster
from tests.support.node import Closed, Node, serve_and
from tests.support.scram_login import password_of, scram_log_in, without_password

SASL_PORT = 9094
METADATA = MetadataRequest(topics=[])
PROPERTIES: dict[str, Any] = {
    "listeners": f"PLAINTEXT://:9092,CONTROLLER://:9093,SASL://:{SASL_PORT}",
    "advertised_listeners": f"PLAINTEXT://broker-1:9092,SASL://broker-1:{SASL_PORT}",
    "listener_security_protocol_map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
    "sasl_enabled_mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
}
LOGIN = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="broker" password="b";'
SECURED: dict[str, Any] = {
    "listener_security_protocol_map": "CONTROLLER:SASL_PLAINTEXT,PLAINTEXT:SASL_PLAINTEXT",
    "sasl_enabled_mechanisms": "SCRAM-SHA-512",
    "sasl_mechanism_inter_broker_protocol": "SCRAM-SHA-512",
    "sasl_mechanism_controller_protocol": "SCRAM-SHA-512",
    "listener_name_plaintext_scram-sha-512_sasl_jaas_config": LOGIN,
    "listener_name_controller_scram-sha-512_sasl_jaas_config": LOGIN,
}
"""Every listener asks for SCRAM; the names of the listeners stay."""


@pytest.mark.parametrize("mechanism", [ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512])
def test_a_user_logs_in_with_what_the_metadata_says_now(mechanism: ScramMechanism) -> None:
    async def story(node: Node) -> None:
        admin, client = await node.connect(), await node.connect(SASL_PORT)
        await admin.ask(password_of("alice", "secret", mechanism), 0)
        reply = await scram_log_in(client, "alice", "secret", mechanism)
        assert reply.error_code == ErrorCode.NONE, reply
        await client.ask(METADATA, 9)
        listener = next(each for each in node.broker.listeners if each.name == "SASL")
        (connection,) = listener.connections
        assert connection.access.principal == Principal("User", "alice")
        assert listener.security.counts.succeeded == {mechanism.mechanism_name: 1}
        await admin.ask(without_password("alice", mechanism), 0)
        refused = await scram_log_in(await node.connect(SASL_PORT), "alice", "secret", mechanism)
        assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        await client.ask(METADATA, 9)  # as in Apache Kafka: what is open stays open

    serve_and(story, **PROPERTIES)


def test_an_unknown_user_gets_the_answers_of_a_wrong_password() -> None:
    async def story(node: Node) -> None:
        admin = await node.connect()
        await admin.ask(password_of("alice", "secret"), 0)
        answers = []
        for user in ("alice", "mallory", "mallory"):
            client = await node.connect(SASL_PORT)
            answers.append(await scram_log_in(client, user, "wrong"))
            with pytest.raises(Closed):
                await client.ask(METADATA, 9)
        assert answers[0] == answers[1] == answers[2]
        assert answers[0].error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "invalid credentials" in (answers[0].error_message or "")

    serve_and(story, **PROPERTIES)


def test_brokers_and_controllers_log_in_to_each_other_from_the_first_election_on() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.settled()
        client = await cluster.connect(1)
        with pytest.raises(Closed):
            await client.ask(METADATA, 9)
        for node in cluster.nodes.values():
            node.stop()
        await cluster.until(lambda: not any(node.is_up for node in cluster.nodes.values()), "all nodes are down")
        for node in cluster.nodes.values():
            node.boot()
        await cluster.settled()
        client = await cluster.connect(1)
        assert (await scram_log_in(client, "broker", "b", ScramMechanism.SCRAM_SHA_512)).error_code == ErrorCode.NONE
        assert len((await client.ask(METADATA, 9)).brokers) == 3

    credential = scram_record("SCRAM-SHA-512=[name=broker,password=b]", lambda size: bytes(size))
    with Cluster(seed=3, credentials=(credential,), **SECURED) as cluster:
        cluster.live(story)
