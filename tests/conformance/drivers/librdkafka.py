"""What confluent-kafka and kcat share: librdkafka's names for strategies, errors and ways to log in."""

from __future__ import annotations

from collections.abc import Mapping

STRATEGIES = {"range": "range", "roundrobin": "roundrobin", "cooperative": "cooperative-sticky"}

# librdkafka's own spelling if it differs from Kafka's, and its local errors that stand for a broker's answer.
_KAFKA_NAMES = {
    "_AUTO_OFFSET_RESET": "OFFSET_OUT_OF_RANGE",
    "_UNKNOWN_TOPIC": "UNKNOWN_TOPIC_OR_PARTITION",
    "_UNKNOWN_PARTITION": "UNKNOWN_TOPIC_OR_PARTITION",
    "UNKNOWN_TOPIC_OR_PART": "UNKNOWN_TOPIC_OR_PARTITION",
    "MSG_SIZE_TOO_LARGE": "MESSAGE_TOO_LARGE",
    "TOPIC_EXCEPTION": "INVALID_TOPIC_EXCEPTION",
    "_NOENT": "NOT_FOUND_LOCALLY",
}


def error_name(name: str) -> str:
    return _KAFKA_NAMES.get(name, name)


def security_settings(security: Mapping[str, str]) -> dict[str, str]:
    """The settings of a client that logs in so, but for tokens of OAUTHBEARER, which each client makes its own way."""
    settings = {"security.protocol": security["protocol"], "ssl.ca.location": security["ca"]}
    if "mechanism" in security:
        settings["sasl.mechanism"] = security["mechanism"]
        if security["mechanism"] != "OAUTHBEARER":
            settings |= {"sasl.username": security["user"], "sasl.password": security["password"]}
    if "certificate" in security:
        settings |= {"ssl.certificate.location": security["certificate"], "ssl.key.location": security["certificate"]}
    return settings
