"""The page on TLS, users and ACLs: its closed node serves the user of its program, its commands are known, its cluster
has settings that a node takes.
"""

from __future__ import annotations

import json
import re
import shlex
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined] # it has no __all__
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from moldau.broker.cli import main
from moldau.broker.cli.command import parser
from moldau.broker.cli.invocation import read_file
from moldau.broker.config.loading import checked_config
from moldau.storage.checkpoints.java_properties import read_properties
from moldau.testing.ports import free_ports

TEXT = (Path(__file__).parents[3] / "docs" / "security.md").read_text("utf-8")
(PROGRAM,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
(PROPERTIES,) = re.findall(r"```properties\n(.*?)```", TEXT, re.DOTALL)
COMMANDS = [shlex.split(line) for line in re.findall(r"^    moldau (.*)$", TEXT.replace("\\\n", ""), re.MULTILINE)]
FORMAT, SERVE, EXPLAIN = COMMANDS[:3]
PASSWORD = re.compile(r'password="([^"]*)"')
RIGHTS = (
    (ResourceType.TOPIC, "orders", AclOperation.CREATE),
    (ResourceType.TOPIC, "orders", AclOperation.DESCRIBE),
    (ResourceType.TOPIC, "orders", AclOperation.WRITE),
    (ResourceType.TOPIC, "orders", AclOperation.READ),
    (ResourceType.GROUP, "kitchen", AclOperation.READ),
)
"""What kafka-acls.sh adds with --producer and --consumer."""


def administrator(address: str) -> AdminClient:
    """The user of client.properties, in the words of librdkafka."""
    properties = read_file("secure/client.properties")
    password = PASSWORD.search(properties["sasl.jaas.config"])
    assert password is not None
    login = {"sasl.mechanism": properties["sasl.mechanism"], "sasl.username": "admin", "sasl.password": password[1]}
    security = {"security.protocol": "SASL_SSL", "ssl.ca.location": properties["ssl.truststore.location"]}
    return AdminClient({"bootstrap.servers": address, **security, **login})


def admit_alice(admin: AdminClient) -> None:
    """What the page does with kafka-configs.sh and kafka-acls.sh."""
    scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    admitted: list[UserScramCredentialAlteration] = [UserScramCredentialUpsertion("alice", scram, b"alice-secret")]
    allowed = [
        AclBinding(kind, name, ResourcePatternType.LITERAL, "User:alice", "*", operation, AclPermissionType.ALLOW)
        for kind, name, operation in RIGHTS
    ]
    for done in (*admin.alter_user_scram_credentials(admitted).values(), *admin.create_acls(allowed).values()):
        done.result(30)


@pytest.mark.processes
def test_the_closed_node_serves_alice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(FORMAT) == 0
    port, local, controller = free_ports(3)
    clients = f"SECURE://localhost:{port},LOCAL://127.0.0.1:{local}"
    overrides = [
        f"--override=listeners={clients},CONTROLLER://127.0.0.1:{controller}",
        f"--override=advertised.listeners={clients}",
        f"--override=controller.quorum.bootstrap.servers=127.0.0.1:{controller}",
    ]
    command = [sys.executable, "-m", "moldau", *SERVE, *overrides, "--greeting", "json"]
    node = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert node.stdout is not None and json.loads(node.stdout.readline())["listeners"]
        admit_alice(administrator(f"localhost:{port}"))
        program = PROGRAM.replace("localhost:9092", f"localhost:{port}")
        said = subprocess.check_output([sys.executable, "-c", program], text=True, timeout=60)
        assert said == "b'three rolls'\n"
        capsys.readouterr()
        assert main([word.replace("localhost:9092", f"localhost:{port}") for word in EXPLAIN]) == 0
        assert "allowed" in capsys.readouterr().out
    finally:
        node.terminate()
        node.wait(20)


@pytest.mark.processes
def test_a_renewed_certificate_is_used_without_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(FORMAT) == 0
    key_store = tmp_path / "secure" / "node.pem"
    first = x509.load_pem_x509_certificate(key_store.read_bytes())
    port, local, controller = free_ports(3)
    clients = f"SECURE://localhost:{port},LOCAL://127.0.0.1:{local}"
    command = [sys.executable, "-m", "moldau", *SERVE, "--greeting", "json"]
    command += [f"--override=listeners={clients},CONTROLLER://127.0.0.1:{controller}"]
    command += [f"--override=advertised.listeners={clients}"]
    command += [f"--override=controller.quorum.bootstrap.servers=127.0.0.1:{controller}"]
    with (tmp_path / "log").open("w+") as log:
        node = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert node.stdout is not None and json.loads(node.stdout.readline())["listeners"]
            assert shown_certificate(port) == first
            second = put_certificate(key_store, first, first.subject)
            wait_for(lambda: shown_certificate(port) == second)
            put_certificate(key_store, first, x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "another")]))
            wait_for(lambda: "ssl.allow.dn.changes=true allows it" in (tmp_path / "log").read_text())
            assert shown_certificate(port) == second
        finally:
            node.terminate()
            node.wait(20)
    assert "needs no restart" in TEXT and "`ssl.allow.dn.changes=true`" in TEXT


def put_certificate(key_store: Path, like: x509.Certificate, subject: x509.Name) -> x509.Certificate:
    """Replace the key store by a new key, and a certificate for the same hosts."""
    key = ec.generate_private_key(ec.SECP256R1())
    hosts = like.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    certificate = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(like.not_valid_before_utc)
        .not_valid_after(like.not_valid_after_utc)
        .add_extension(hosts, False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    new = key_store.with_suffix(".new")
    new.write_bytes(secret + certificate.public_bytes(pem))
    new.rename(key_store)
    return certificate


def shown_certificate(port: int) -> x509.Certificate:
    return x509.load_pem_x509_certificate(ssl.get_server_certificate(("localhost", port), timeout=10).encode())


def wait_for(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_every_command_is_accepted() -> None:
    assert len(COMMANDS) == 6
    for words in COMMANDS:
        assert parser(first_word=words[0]).parse_args(words).run


def test_the_settings_of_the_cluster_are_taken() -> None:
    config = checked_config(read_properties(PROPERTIES))
    assert config.warnings == ()
    assert {each.security_protocol for each in config.listeners} == {"SASL_SSL", "SSL"}
