"""One login of one Python client: `login.py LIBRARY BOOTSTRAP SECURITY`. SECURITY is JSON (`Security`).

It sends one record and reads it back. It prints `ok`, or the kind of refusal that the application sees.
"""

# mypy: disable-error-code="import-untyped,no-any-return,misc"

from __future__ import annotations

import asyncio
import json
import ssl
import sys
import time
from typing import Any, Final

from moldau.security.sasl.oauthbearer.token import unsecured_token
from tests.conformance.drivers.librdkafka import security_settings

PATIENCE_S: Final = 20.0
TOPIC: Final = "logins"
REFUSED, OTHER = "refused", "no answer"
"""What an application is told: that it is not let in, or nothing but that it cannot connect."""


def bearer_token() -> str:
    return unsecured_token("bearer", int(time.time() * 1000), 600_000)


def confluent(bootstrap: str, security: dict[str, Any]) -> str:
    from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

    seen: list[KafkaError] = []
    config: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        **security_settings(security),
        "error_cb": seen.append,
    }
    if security.get("mechanism") == "OAUTHBEARER":
        config["oauth_cb"] = lambda _: (bearer_token(), time.time() + 500)
    producer = Producer(config)
    producer.produce(TOPIC, b"record", partition=0)
    ends = time.monotonic() + PATIENCE_S
    while len(producer) and time.monotonic() < ends:
        producer.poll(0.1)
        codes = {each.code() for each in seen}
        if codes & {KafkaError._AUTHENTICATION, KafkaError._SSL}:
            return REFUSED
    if len(producer):
        return OTHER
    consumer = Consumer(config | {"group.id": "x", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    return "ok" if consumer.consume(1, PATIENCE_S) else OTHER


def context(security: dict[str, Any]) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=security["ca"])
    if "certificate" in security:
        made.load_cert_chain(security["certificate"])
    return made


def python_settings(bootstrap: str, security: dict[str, Any]) -> dict[str, Any]:
    """What kafka-python and aiokafka call alike."""
    config: dict[str, Any] = {
        "bootstrap_servers": bootstrap,
        "security_protocol": security["protocol"],
        "ssl_context": context(security),
    }
    if "mechanism" in security:
        config["sasl_mechanism"] = security["mechanism"]
        if security["mechanism"] != "OAUTHBEARER":
            config |= {"sasl_plain_username": security["user"], "sasl_plain_password": security["password"]}
    return config


def kafka_python(bootstrap: str, security: dict[str, Any]) -> str:
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.errors import KafkaError, SaslAuthenticationFailedError
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Tokens(AbstractTokenProvider):
        def token(self) -> str:
            return bearer_token()

    config = python_settings(bootstrap, security)
    if security.get("mechanism") == "OAUTHBEARER":
        config["sasl_oauth_token_provider"] = Tokens()
    try:
        producer = KafkaProducer(**config, max_block_ms=int(PATIENCE_S * 1000))
        producer.send(TOPIC, b"record", partition=0).get(PATIENCE_S)
        consumer = KafkaConsumer(**config, auto_offset_reset="earliest", consumer_timeout_ms=int(PATIENCE_S * 1000))
        consumer.assign([TopicPartition(TOPIC, 0)])
        next(iter(consumer))
    except SaslAuthenticationFailedError:
        return REFUSED
    except KafkaError:
        return OTHER
    return "ok"


def aiokafka(bootstrap: str, security: dict[str, Any]) -> str:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
    from aiokafka.abc import AbstractTokenProvider
    from aiokafka.errors import AuthenticationFailedError, KafkaError, SaslAuthenticationFailed

    class Tokens(AbstractTokenProvider):
        async def token(self) -> str:
            return bearer_token()

    async def story() -> str:
        config = python_settings(bootstrap, security)
        if security.get("mechanism") == "OAUTHBEARER":
            config["sasl_oauth_token_provider"] = Tokens()
        producer = AIOKafkaProducer(**config)
        try:
            await producer.start()
            await producer.send_and_wait(TOPIC, b"record", partition=0)
            consumer = AIOKafkaConsumer(**config, auto_offset_reset="earliest")
            await consumer.start()
            consumer.assign([TopicPartition(TOPIC, 0)])
            await asyncio.wait_for(consumer.getone(), PATIENCE_S)
            await consumer.stop()
        except (AuthenticationFailedError, SaslAuthenticationFailed):
            return REFUSED
        except KafkaError:
            return OTHER
        finally:
            await producer.stop()
        return "ok"

    return asyncio.run(story())


LIBRARIES: Final = {"confluent": confluent, "kafka-python": kafka_python, "aiokafka": aiokafka}

if __name__ == "__main__":
    library, address, given = sys.argv[1:]
    print(LIBRARIES[library](address, json.loads(given)))
