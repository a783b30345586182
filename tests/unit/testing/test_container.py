"""A suite that was written for Testcontainers' class, with another import."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from moldau.testing import KafkaContainer
from moldau.testing.ports import HOST, free_ports

pytestmark = pytest.mark.processes


def test_a_suite_of_testcontainers_changes_one_import() -> None:
    with KafkaContainer("confluentinc/cp-kafka:7.6.0").with_kraft() as kafka:
        connection = kafka.get_bootstrap_server()
        producer = Producer({"bootstrap.servers": connection})
        producer.produce("t", "x")
        assert producer.flush(10) == 0
        assert f"{kafka.get_container_host_ip()}:{kafka.get_exposed_port(9093)}" == connection
        assert b"serves" in kafka.get_logs()[1]
        with pytest.raises(ValueError, match="is 9093, not 9092"):
            kafka.get_exposed_port(9092)
    with pytest.raises(RuntimeError, match=r"call start\(\)"):
        kafka.get_bootstrap_server()


def test_variables_of_the_image_are_settings() -> None:
    (port,) = free_ports(1)
    kafka = (
        KafkaContainer(port=9092).with_env("KAFKA_NUM_PARTITIONS", 3).with_env("LANG", "C").with_bind_ports(9092, port)
    )
    kafka.with_envs(KAFKA_LISTENERS="PLAINTEXT://0.0.0.0:9092", KAFKA_BROKER_ID="7").with_name("n").with_network(None)
    kafka.with_cluster_id("x").with_exposed_ports(9092).with_network_aliases("a").with_kwargs(privileged=True)
    kafka.start()
    try:
        assert kafka.start().get_bootstrap_server() == f"{HOST}:{port}"
        kafka.cluster.produce("t", "x")
        assert len(kafka.cluster.client.ends("t")) == 3
    finally:
        kafka.stop()
        kafka.stop()
