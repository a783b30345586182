"""A command talks to a cluster with the properties of a client."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from moldau.broker.cli.client_channels import client_channels
from moldau.broker.cli.command import main
from moldau.broker.cli.invocation import CommandError, read_file
from moldau.broker.network.peer_security import PeerSecurity


def security_of(file: Path | None) -> PeerSecurity | None:
    async def story() -> PeerSecurity | None:
        channels = client_channels("test", {} if file is None else read_file(str(file)), str(file))
        channels.close()
        return channels.security

    return asyncio.run(story())


def written(file: Path, text: str) -> Path:
    file.write_text(text)
    return file


def test_the_properties_that_format_secure_writes_are_taken(tmp_path: Path) -> None:
    assert main(["format", "--secure", str(tmp_path / "secure")]) == 0
    security = security_of(tmp_path / "secure" / "client.properties")
    assert security is not None and security.tls is not None and security.mechanism is not None


def test_without_a_security_protocol_there_is_neither_tls_nor_a_login(tmp_path: Path) -> None:
    assert security_of(None) is None
    assert security_of(written(tmp_path / "plain", "security.protocol=PLAINTEXT\n")) is None
    login = (
        'sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b";'
    )
    file = written(tmp_path / "login", f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n{login}\n")
    security = security_of(file)
    assert security is not None and security.tls is None and security.mechanism is not None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("security.protocol=SASL_FOO", "Invalid security protocol"),
        ("security.protocol=SASL_SSL", "GSSAPI"),
        (
            "security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location=/none/ca.pem",
            "cannot be read",
        ),
    ],
)
def test_properties_that_cannot_be_used_are_refused(text: str, problem: str, tmp_path: Path) -> None:
    file = written(tmp_path / "client.properties", text)
    with pytest.raises(CommandError, match=problem) as refused:
        security_of(file)
    assert str(file) in str(refused.value)
