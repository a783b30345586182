"""A certificate, an authority, a user and an ACL change on three nodes under load: in force soon on each of them."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import Callable, Coroutine
from typing import Final

from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.security.sasl.scram.credential import ScramMechanism
from tests.conformance.committed import await_in_sync, create_topics
from tests.conformance.scenarios.directories import DirectoryScenario, Workshop
from tests.conformance.secured.listeners import Between
from tests.conformance.secured.permissions import grant, topics, withdraw
from tests.conformance.secured.trio import SecuredTrio
from tests.conformance.session import expect
from tests.conformance.trio import NODES
from tests.support.asking_client import METADATA, AskingClient, is_in_force
from tests.support.node import Client, Closed
from tests.support.scram_login import scram_log_in, without_password

IN_FORCE_S: Final = 5.0
USERS: Final = {"alice": "alice-secret", "bob": "bob-secret"}
TOPIC: Final = "guarded"
(PERMISSION,) = topics((AclOperation.DESCRIBE,), TOPIC)
ASKED: Final = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
FIRST, SECOND, LOGGED_IN = "first", "second", "logged in"
"""The clients of each node under load: with a certificate of the authority that stays, with one of that which goes,
and with a login that stays."""


async def connected(port: int, context: ssl.SSLContext | None = None) -> Client:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    return Client(reader, writer, "changes")


class Clients:
    """Connections to the nodes of the cluster."""

    def __init__(self, three: SecuredTrio) -> None:
        self._stores = three.stores
        self.three = three

    def context(self, name: str = "") -> ssl.SSLContext:
        made = ssl.create_default_context(cafile=str(self._stores.ca))
        if name:
            made.load_cert_chain(self._stores.client if name == FIRST else self._stores.unknown)
        return made

    async def with_certificate(self, port: int, name: str) -> Client:
        return await connected(port + 1, self.context(name))

    async def logged_in(self, port: int, user: str) -> tuple[Client, bool]:
        """A client of the user's, and whether it is let in."""
        client = await connected(port, self.context())
        answer = await scram_log_in(client, user, USERS[user], ScramMechanism.SCRAM_SHA_512)
        return client, answer.error_code == ErrorCode.NONE

    async def under_load(self, port: int) -> dict[str, AskingClient]:
        bob, is_let_in = await self.logged_in(port, "bob")
        expect(is_let_in, "bob is let in")
        certified = {name: await self.with_certificate(port, name) for name in (FIRST, SECOND)}
        return {name: AskingClient(client) for name, client in {**certified, LOGGED_IN: bob}.items()}


class Change:
    """Judges one change after another, on every node."""

    def __init__(self, clients: Clients, loads: dict[int, dict[str, AskingClient]]) -> None:
        self.clients = clients
        self.loads = loads
        self.undisturbed = {FIRST, SECOND, LOGGED_IN}
        self.slowest_s: dict[str, float] = {}

    async def is_followed(self, what: str, on: Callable[[int], Coroutine[object, object, bool]]) -> None:
        """Raises `Failed` if a node does not follow in time, or a client notices that should not."""
        began = time.monotonic()
        followed = await asyncio.gather(*(is_in_force(lambda port=port: on(port), IN_FORCE_S) for port in self.loads))  # type: ignore[misc]
        self.slowest_s[what] = time.monotonic() - began
        expect(all(followed), f"{what} within {IN_FORCE_S:.0f} s on every node, and not {followed}")
        for port, loads in self.loads.items():
            for name in sorted(self.undisturbed):
                expect(await loads[name].goes_on(IN_FORCE_S), f"{what}: the client {name} of port {port} goes on")

    async def certificate(self) -> None:
        serial = self.clients.three.stores.renew()

        async def is_shown(port: int) -> bool:
            client = await self.clients.with_certificate(port, FIRST)
            shown = client.writer.get_extra_info("peercert")
            client.close()
            return int(shown["serialNumber"], 16) == serial

        await self.is_followed("the new certificate is shown", is_shown)

    async def authority(self) -> None:
        self.undisturbed.remove(SECOND)
        self.clients.three.stores.trust_no_other()

        async def has_ended(port: int) -> bool:
            return self.loads[port][SECOND].is_closed

        await self.is_followed("the connections of the removed authority have ended", has_ended)
        for port in self.loads:
            with contextlib.suppress(Closed, OSError):
                await (await self.clients.with_certificate(port, SECOND)).ask(METADATA, 9)
                expect(False, "a certificate of the removed authority is refused")

    async def permission(self) -> None:
        alice = {port: await self.clients.logged_in(port, "alice") for port in self.loads}
        for client, is_let_in in alice.values():
            expect(is_let_in, "alice is let in")
            expect(await self._told(client) == ErrorCode.NONE, "alice may describe the topic")
        await asyncio.to_thread(withdraw, self.clients.three.bootstrap, "alice", PERMISSION)

        async def is_denied(port: int) -> bool:
            return await self._told(alice[port][0]) == ErrorCode.TOPIC_AUTHORIZATION_FAILED

        await self.is_followed("the removed ACL allows no longer", is_denied)
        for client, _ in alice.values():
            client.close()

    async def _told(self, client: Client) -> int:
        answer = await client.ask(ASKED, 9)
        return int(answer.topics[0].error_code)

    async def user(self) -> None:
        admin = await connected(self.clients.three.nodes[0].port)
        answer = await admin.ask(without_password("alice", ScramMechanism.SCRAM_SHA_512), 0)
        expect(not any(each.error_code for each in answer.results), f"the user is deleted: {answer}")
        admin.close()

        async def is_refused(port: int) -> bool:
            client, is_let_in = await self.clients.logged_in(port, "alice")
            client.close()
            return not is_let_in

        await self.is_followed("the deleted user is refused", is_refused)


async def changes(three: SecuredTrio) -> dict[str, float]:
    """The seconds until every node has followed each change. Raises `Failed`."""
    clients = Clients(three)
    change = Change(clients, {port: await clients.under_load(port) for port in three.secured_ports})
    try:
        await change.certificate()
        await change.authority()
        await change.permission()
        await change.user()
    finally:
        for loads in change.loads.values():
            for load in loads.values():
                load.stop()
    return change.slowest_s


def story(work: Workshop) -> None:
    three = SecuredTrio("moldau", work.toolchain, work.ports, work.directory, Between.CERTIFICATES, USERS)
    three.stores.trust_other()
    three.format()
    with contextlib.closing(three):
        three.start()
        create_topics(three.bootstrap, {TOPIC: 1})
        await_in_sync(three.bootstrap, NODES)
        grant(three.bootstrap, "alice", [PERMISSION])
        slowest_s = asyncio.run(changes(three))
        (work.directory / "seconds.txt").write_text(f"{slowest_s}\n")


DEMANDS: Final = (
    "three nodes: a certificate, an authority, an ACL, a user change under load; in force within 5 s on each"
)
SECURED_CHANGE_SCENARIOS: Final = (DirectoryScenario("secured-changes", DEMANDS, story),)
