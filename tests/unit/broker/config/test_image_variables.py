"""Variables of other images and of Kubernetes: what is translated, what is dropped, what is told."""

from __future__ import annotations

from moldau.broker.config.image_variables import translate_variables, without_services
from moldau.broker.config.sources import from_environment, unknown_variables

KUBERNETES = {
    "KAFKA_PORT": "tcp://10.0.0.1:9092",
    "KAFKA_SERVICE_HOST": "10.0.0.1",
    "KAFKA_SERVICE_PORT": "9092",
    "KAFKA_SERVICE_PORT_CLIENTS": "9092",
    "KAFKA_PORT_9092_TCP": "tcp://10.0.0.1:9092",
    "KAFKA_PORT_9092_TCP_PROTO": "tcp",
    "KAFKA_PORT_9092_TCP_PORT": "9092",
    "KAFKA_PORT_9092_TCP_ADDR": "10.0.0.1",
    "KAFKA_HEADLESS_PORT": "udp://10.0.0.1:9092",
    "KAFKA_HEADLESS_SERVICE_HOST": "10.0.0.1",
}
"""Of services named kafka and kafka-headless."""


def unread(path: str) -> str:
    raise AssertionError(path)


def test_variables_of_a_service_named_kafka_are_neither_settings_nor_mistakes() -> None:
    variables = KUBERNETES | {"KAFKA_NUM_PARTITIONS": "3", "KAFKA_NUM_PARTITION": "3"}
    assert from_environment(variables) == {"num.partitions": "3"}
    assert unknown_variables(variables) == ("KAFKA_NUM_PARTITION",)


def test_a_port_that_is_no_address_of_a_service_stays_a_setting() -> None:
    assert without_services({"KAFKA_PORT": "9092", "KAFKA_JMX_PORT": "1"}) == {
        "KAFKA_PORT": "9092",
        "KAFKA_JMX_PORT": "1",
    }


def test_variables_of_this_image_stay_as_they_are() -> None:
    variables = {"KAFKA_NODE_ID": "1", "CLUSTER_ID": "x", "PATH": "/bin", "KAFKA_CFG_": ""}
    assert translate_variables(variables, unread) == (variables, None)


def test_variables_of_bitnamis_image_are_translated_with_one_warning() -> None:
    variables = {
        "KAFKA_CFG_NODE_ID": "0",
        "KAFKA_CFG_NUM_PARTITIONS": "3",
        "KAFKA_NUM_PARTITIONS": "5",
        "KAFKA_KRAFT_CLUSTER_ID": "id",
        "ALLOW_PLAINTEXT_LISTENER": "yes",
    }
    found, warning = translate_variables(variables, unread)
    assert found == {"KAFKA_NODE_ID": "0", "KAFKA_NUM_PARTITIONS": "5", "CLUSTER_ID": "id"}
    assert warning is not None and warning.count("\n") == 0
    for words in (
        "KAFKA_CFG_NODE_ID is KAFKA_NODE_ID",
        "KAFKA_KRAFT_CLUSTER_ID is CLUSTER_ID",
        "ALLOW_PLAINTEXT_LISTENER has no effect",
    ):
        assert words in warning


def test_files_of_keys_and_passwords_are_those_in_the_folder_of_secrets() -> None:
    files = {"/etc/kafka/secrets/keystore-creds": "secret\n", "/etc/kafka/secrets/key-creds": "other"}
    found, warning = translate_variables(
        {
            "KAFKA_SSL_KEYSTORE_FILENAME": "keystore.pem",
            "KAFKA_SSL_KEYSTORE_CREDENTIALS": "keystore-creds",
            "KAFKA_SSL_KEY_CREDENTIALS": "key-creds",
            "CONFLUENT_SUPPORT_CUSTOMER_ID": "anonymous",
        },
        files.__getitem__,
    )
    assert found == {
        "KAFKA_SSL_KEYSTORE_LOCATION": "/etc/kafka/secrets/keystore.pem",
        "KAFKA_SSL_KEYSTORE_PASSWORD": "secret",
        "KAFKA_SSL_KEY_PASSWORD": "other",
    }
    assert (
        warning is not None and "secret\n" not in warning and "CONFLUENT_SUPPORT_CUSTOMER_ID has no effect" in warning
    )
