"""The vulnerabilities that Apache Kafka and its libraries had, each as a test of this broker by its id.

Others stand beside what they are about: CVE-2017-12610, CVE-2024-56128 and CVE-2024-27309 in the tests of PLAIN, SCRAM
and ACLs, CVE-2025-27817 in those of OAUTHBEARER.
"""

from __future__ import annotations

import hmac
import struct
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from moldau.broker.config import ConfigError
from moldau.broker.config.describing import describe_broker
from moldau.broker.config.layers import BrokerLayers
from moldau.broker.config.loading import checked_config
from moldau.broker.config.sources import single_node_defaults
from moldau.protocol.compression import Codec, decompress
from moldau.protocol.errors import ErrorCode
from moldau.protocol.frames import request_head, size_prefixed
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.protocol.primitives import MalformedMessage
from moldau.security.sasl import plain
from moldau.security.sasl.jaas import JaasError, parse_jaas
from moldau.security.sasl.mechanism import Failed
from moldau.security.sasl.plain import PlainServer, PlainUsers
from moldau.security.sasl.scram import exchange as scram_exchange
from moldau.security.sasl.scram.credential import ScramMechanism
from tests.support.node import Closed, Node, serve_and
from tests.support.scram_login import password_of, scram_log_in
from tests.unit.broker.node.test_scram_logins import PROPERTIES, SASL_PORT

DEFAULTS = single_node_defaults("/tmp/nowhere")
SECRET = "swordfish"
ALLOCATED_MAX = 1 << 20


def test_cve_2019_12399_no_description_shows_a_secret() -> None:
    secrets = {
        "listener.name.internal.plain.sasl.jaas.config": f'a.B required password="{SECRET}";',
        "ssl.key.password": SECRET,
        "ssl.truststore.password": SECRET,
        "sasl.oauthbearer.client.credentials.client.secret": SECRET,
        "delegation.token.secret.key": SECRET,
    }
    config = checked_config(DEFAULTS | secrets)
    described = [*describe_broker(config, BrokerLayers.from_config(config))]
    assert set(secrets) <= {each.name for each in described}
    assert SECRET not in repr(described) + repr(config) + repr(config.originals) + "".join(config.warnings)


@pytest.mark.parametrize("user", ["alice", "mallory"])
def test_cve_2021_38153_secrets_are_compared_in_constant_time(user: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[int, int]] = []

    def counted(of: Callable[[bytes, bytes], bool]) -> Callable[[bytes, bytes], bool]:
        def compare(one: bytes, other: bytes) -> bool:
            compared.append((len(one), len(other)))
            return of(one, other)

        return compare

    monkeypatch.setattr(plain, "compare_digest", counted(hmac.compare_digest))
    users = PlainUsers({"alice": "secret"})
    for password in ("x", "secret", "s" * 1000):
        PlainServer(users).step(f"\0{user}\0{password}".encode())
    assert compared == [(32, 32)] * 3

    async def story(node: Node) -> None:
        admin, client = await node.connect(), await node.connect(SASL_PORT)
        await admin.ask(password_of("alice", "secret"), 0)
        compared.clear()
        monkeypatch.setattr(scram_exchange, "compare_digest", counted(hmac.compare_digest))
        reply = await scram_log_in(client, user, "wrong", ScramMechanism.SCRAM_SHA_256)
        assert reply.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert compared[-1] == (32, 32)
        assert len(compared) == 2

    serve_and(story, **PROPERTIES)


def frame(key: int, version: int, body: bytes) -> bytes:
    return size_prefixed(request_head(key, version, 1) + body)


HUGE = 0x7FFFFFF0
TINY_FRAMES = {
    "Metadata with a huge list of topics": frame(3, 1, struct.pack(">i", HUGE)),
    "SaslAuthenticate with huge bytes": frame(36, 1, struct.pack(">i", HUGE)),
    "SaslHandshake with a long mechanism": frame(17, 1, struct.pack(">h", 0x7FFF)),
    "ApiVersions with a long name": frame(18, 3, b"\x00\xff\xff\xff\xff\x07"),
    "a frame that says it is huge": struct.pack(">i", HUGE),
}


@pytest.mark.parametrize("name", TINY_FRAMES)
def test_cve_2022_34917_a_tiny_frame_before_authentication_allocates_little(name: str) -> None:
    async def story(node: Node) -> None:
        client = await node.connect(SASL_PORT)
        tracemalloc.start()
        client.writer.write(TINY_FRAMES[name])
        with suppress(Closed, ConnectionError):
            assert not await client.reader.read(1 << 16), "the broker closes the connection without an answer"
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < ALLOCATED_MAX

    serve_and(story, **PROPERTIES)


@pytest.mark.parametrize(
    ("module", "vulnerability"),
    [
        ("com.sun.security.auth.module.JndiLoginModule", "CVE-2023-25194"),
        ("com.sun.security.auth.module.LdapLoginModule", "CVE-2025-27818"),
        ("com.sun.security.auth.module.JndiLoginModule", "CVE-2025-27819"),
    ],
)
def test_cve_2023_25194_2025_27818_2025_27819_no_login_module_is_loaded(module: str, vulnerability: str) -> None:
    with pytest.raises(JaasError, match="not a login module"):
        parse_jaas(f'{module} required user.provider.url="ldap://evil";', "PLAIN")

    async def story(node: Node) -> None:
        """A setting of the metadata log cannot name one either: what listeners ask of clients is settled at start."""
        name = "listener.name.sasl.plain.sasl.jaas.config"
        change = AlterableConfig(name=name, config_operation=0, value=f'{module} required a="ldap://evil";')
        resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=[change])
        admin = await node.connect()
        before = node.broker.security
        await admin.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
        assert node.broker.security is before
        assert (await scram_log_in(await node.connect(SASL_PORT), "alice", "x")).error_code != ErrorCode.NONE

    serve_and(story, **PROPERTIES)


@pytest.mark.parametrize("value", ["${env:HOME}", "${file:/etc/passwd:root}", "${directory:/etc:passwd}"])
def test_cve_2024_31141_a_setting_reads_neither_files_nor_variables(value: str) -> None:
    assert checked_config(DEFAULTS | {"broker.rack": value}).text("broker.rack") == value
    for name in ("config.providers", "config.providers.file.class"):
        given: dict[str, Any] = {name: "org.apache.kafka.common.config.provider.FileConfigProvider"}
        with suppress(ConfigError):
            assert any(name in each for each in checked_config(DEFAULTS | given).warnings)


def test_cve_2023_34455_a_snappy_block_does_not_say_how_much_is_allocated() -> None:
    for data in (b"\xff\xff\xff\xff\x07" + b"\0", b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, HUGE) + b"\0"):
        tracemalloc.start()
        with pytest.raises(MalformedMessage):
            decompress(Codec.SNAPPY, data, size_max=1 << 20)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 2 * ALLOCATED_MAX


def test_cve_2017_12610_no_client_acts_as_another() -> None:
    outcome = PlainServer(PlainUsers({"alice": "secret"})).step(b"admin\0alice\0secret")
    assert isinstance(outcome, Failed)
