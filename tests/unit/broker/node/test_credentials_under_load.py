"""Certificates, authorities and users change while clients are served: in force soon, and the others notice nothing."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from moldau.broker.config.sources import single_node_defaults
from moldau.protocol.errors import ErrorCode
from moldau.testing.ports import free_ports
from tests.support.asking_client import METADATA, AskingClient, is_in_force
from tests.support.certificates import Authority
from tests.support.node import Client, Closed
from tests.support.scram_login import password_of, scram_log_in, without_password
from tests.unit.broker.node.test_main import ROOT, read_until

pytestmark = pytest.mark.processes
IN_FORCE_S = 5.0


class Files:
    """The stores of the node, and two clients that different authorities have signed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.one, self.other = Authority("one"), Authority("other")
        self.node, self.trust = directory / "node.pem", directory / "trust.pem"
        self.renew()
        self.one.trust_store(self.trust, self.other)
        (directory / "ca.pem").write_text(self.one.certificate_pem)
        for name, authority in (("first", self.one), ("second", self.other)):
            (directory / f"{name}.pem").write_text(authority.issue(name).pem())

    def renew(self) -> int:
        """Another certificate of the node; its serial number."""
        issued = self.one.issue("node", "localhost")
        self.replace(self.node, issued.pem())
        return issued.certificate.serial_number

    def replace(self, path: Path, text: str) -> None:
        new = path.with_suffix(".new")
        new.write_text(text)
        new.rename(path)

    def context(self, name: str) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.directory / "ca.pem"))
        context.load_cert_chain(self.directory / f"{name}.pem")
        return context


class Ports:
    def __init__(self) -> None:
        self.plain, self.controller, self.mutual, self.sasl = free_ports(4)


def settings(files: Files, ports: Ports) -> dict[str, str]:
    own = {"PLAINTEXT": ports.plain, "MUTUAL": ports.mutual, "SASL": ports.sasl}
    clients = ",".join(f"{name}://localhost:{port}" for name, port in own.items())
    return single_node_defaults(str(files.directory / "data")) | {
        "controller.quorum.bootstrap.servers": f"localhost:{ports.controller}",
        "listeners": f"{clients},CONTROLLER://localhost:{ports.controller}",
        "advertised.listeners": clients,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,MUTUAL:SSL,SASL:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "ssl.client.auth": "required",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(files.node),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(files.trust),
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    }


async def connected(port: int, context: ssl.SSLContext | None = None) -> Client:
    reader, writer = await asyncio.open_connection("localhost", port, ssl=context)
    return Client(reader, writer, "test")


@asynccontextmanager
async def loads(files: Files, ports: Ports) -> AsyncIterator[dict[str, AskingClient]]:
    made = {
        "plain": AskingClient(await connected(ports.plain)),
        "first": AskingClient(await connected(ports.mutual, files.context("first"))),
        "second": AskingClient(await connected(ports.mutual, files.context("second"))),
    }
    try:
        yield made
    finally:
        for load in made.values():
            load.stop()


async def story(files: Files, ports: Ports) -> None:
    async with loads(files, ports) as clients:
        serial = files.renew()

        async def has_new_certificate() -> bool:
            client = await connected(ports.mutual, files.context("first"))
            shown = client.writer.get_extra_info("peercert")
            client.close()
            return int(shown["serialNumber"], 16) == serial

        assert await is_in_force(has_new_certificate, IN_FORCE_S)
        assert all([await each.goes_on(IN_FORCE_S) for each in clients.values()])

        files.replace(files.trust, files.one.certificate_pem)

        async def has_ended() -> bool:
            return clients["second"].is_closed

        assert await is_in_force(has_ended, IN_FORCE_S)
        with pytest.raises((Closed, OSError)):
            await (await connected(ports.mutual, files.context("second"))).ask(METADATA, 9)

        admin, alice = await connected(ports.plain), await connected(ports.sasl)
        await admin.ask(password_of("alice", "secret"), 0)
        assert (await scram_log_in(alice, "alice", "secret")).error_code == ErrorCode.NONE
        await admin.ask(without_password("alice"), 0)
        refused = await scram_log_in(await connected(ports.sasl), "alice", "secret")
        assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert await clients["plain"].goes_on(IN_FORCE_S)
        assert await clients["first"].goes_on(IN_FORCE_S)


def test_changes_are_in_force_within_five_seconds_and_disturb_no_other_client(tmp_path: Path) -> None:
    files, ports = Files(tmp_path), Ports()
    path = tmp_path / "server.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in settings(files, ports).items()))
    command = [sys.executable, "-m", "moldau.broker.cli"]
    formatting = [*command, "format", "-c", str(path), "--standalone"]
    formatted = subprocess.run(formatting, cwd=ROOT, capture_output=True, text=True)
    assert formatted.returncode == 0, formatted.stderr
    process = subprocess.Popen(
        [*command, "serve", str(path)], cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    try:
        read_until(process, "serves")
        asyncio.run(story(files, ports))
    finally:
        process.terminate()
        process.communicate(timeout=20)
