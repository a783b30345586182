"""Logins of users and of bearers of delegation tokens at the brokers of a simulated cluster, each judged by what the
metadata of the asked broker says.

A login is judged if that metadata was the same before and after. A token is judged by the wall clock of the broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from moldau.kraft.image.metadata_image import MetadataImage
from moldau.kraft.image.security.scram_credentials import ScramKey
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from moldau.security.sasl.mechanism import LoginFailed
from moldau.security.sasl.scram.exchange import ScramLogin
from tests.support.cluster import LOGIN_PORT, Cluster
from tests.support.cluster_clients import CONNECT_S, Bootstrap, NotAsked, within
from tests.support.node import Client, Closed
from tests.support.scram_login import log_in_as
from tests.support.security.token_holder import LIFE_MS_MAX, TokenHolder
from tests.support.security_administrator import SHA_256, SecurityAdministrator

PAUSE_S: Final = 1.0
SESSION_SHARE: Final = 0.5
"""The share of sessions of bearers whose end is waited for, unless clocks disagree and the session is long."""
LATE_SHARE: Final = 0.05
LATE_S: Final = 0.1
"""How long after the end of a session its client asks, beside a share of the session: clocks differ by 2 % at most."""


class Moment(NamedTuple):
    """What a broker decides logins by."""

    life: int
    skew_ms: int
    wall_ms: int
    image: MetadataImage


class Doors:
    """The listeners of a cluster at which clients log in."""

    def __init__(self, cluster: Cluster, bootstrap: Bootstrap) -> None:
        self._cluster = cluster
        self.bootstrap = bootstrap

    def moment(self, node_id: int) -> Moment | None:
        """None if the broker does not run."""
        node = self._cluster.nodes[node_id]
        if node.broker is None or not node.is_up or not node.broker.quorum.is_open:
            return None
        host = node.host
        return Moment(host.lives, host.wall_skew_ms, host.wall_ms(), node.broker.publisher.image_for_logins())

    async def log_in(
        self, node_id: int, login: ScramLogin, extensions: str = ""
    ) -> tuple[Client, SaslAuthenticateResponse]:
        """The connection, and the last answer, which has an error if the login failed. Raises `Closed`."""
        try:
            client: Client = await within(self._cluster.connect(node_id, LOGIN_PORT), CONNECT_S)
        except (OSError, TimeoutError) as error:
            raise NotAsked from error
        try:
            return client, await within(log_in_as(client, login, self.bootstrap.random, extensions))
        except TimeoutError as error:
            client.close()
            raise Closed from error
        except BaseException:
            client.close()
            raise

    async def opened(self, node_id: int, login: ScramLogin) -> Client:
        """A connection of a user whose credential never changes. Raises `Closed`."""
        client, reply = await self.log_in(node_id, login)
        if reply.error_code != ErrorCode.NONE:
            client.close()
            raise Closed
        return client


class LoggedInUser:
    """Asks any broker as a user."""

    def __init__(self, doors: Doors, login: ScramLogin) -> None:
        self._doors = doors
        self._login = login

    async def ask_any(self, request: object, version: int) -> object:
        """Raises `NotAsked`, or `Closed` if the request may have been carried out."""
        bootstrap = self._doors.bootstrap
        try:
            client = await self._doors.opened(bootstrap.random.choice(bootstrap.node_ids), self._login)
        except Closed as error:
            raise NotAsked from error
        try:
            return await within(client.ask(request, version))
        except TimeoutError as error:
            raise Closed from error
        finally:
            client.close()


class UserLogins:
    """Logs in with the passwords that an administrator sets and removes."""

    def __init__(self, doors: Doors, administrator: SecurityAdministrator, complaints: list[str]) -> None:
        self._doors = doors
        self._administrator = administrator
        self._complaints = complaints
        self.judged = {True: 0, False: 0}
        """The number of logins that were judged, by their result."""

    async def work(self, is_ended: Callable[[], bool], pause_s: float = PAUSE_S) -> None:
        """`pause_s`: at most, between two logins."""
        bootstrap = self._doors.bootstrap
        while not is_ended():
            if self._administrator.logins:
                user = bootstrap.random.choice([*self._administrator.logins])
                try:
                    await self.try_one(user, bootstrap.random.choice(bootstrap.node_ids))
                except Closed:
                    await bootstrap.back_off()
            await asyncio.sleep(bootstrap.random.random() * pause_s)

    async def try_one(self, user: str, node_id: int) -> None:
        """Raises `Closed`."""
        value, login = self._administrator.logins[user]
        before = self._doors.moment(node_id)
        try:
            client, reply = await self._doors.log_in(node_id, login)
            client.close()
            is_let_in = reply.error_code == ErrorCode.NONE
        except LoginFailed:  # the iterations or the salt are those of another password
            is_let_in = False
        after, key = self._doors.moment(node_id), ScramKey(user, SHA_256)
        if before is None or after is None or before.life != after.life:
            return
        credential = before.image.scram.credentials.get(key)
        if credential != after.image.scram.credentials.get(key):
            return
        self.judged[is_let_in] += 1
        if is_let_in != (credential is not None and credential.iterations == value):
            what = "was let in" if is_let_in else "was refused"
            self._complaints.append(f"{user} {what} with password {value} at node {node_id}, which has {credential!r}")


class TokenBearer:
    """Logs in with the tokens that a user created, also with those that have ended."""

    def __init__(self, doors: Doors, holder: TokenHolder, complaints: list[str]) -> None:
        self._doors = doors
        self._holder = holder
        self._complaints = complaints
        self.judged = {True: 0, False: 0}
        """The number of logins that were judged, by their result."""
        self.ended_sessions = 0

    async def work(self, is_ended: Callable[[], bool], pause_s: float = PAUSE_S) -> None:
        """`pause_s`: at most, between two logins."""
        bootstrap = self._doors.bootstrap
        while not is_ended():
            try:
                if self._holder.tokens:
                    await self._try_one(bootstrap.random.choice(bootstrap.node_ids))
            except Closed:
                await bootstrap.back_off()
            await asyncio.sleep(bootstrap.random.random() * pause_s)

    async def _try_one(self, node_id: int) -> None:
        token = self._doors.bootstrap.random.choice(self._holder.tokens)
        before = self._doors.moment(node_id)
        client, reply = await self._doors.log_in(node_id, token.login, ",tokenauth=true")
        try:
            after = self._doors.moment(node_id)
            if before is None or after is None or (before.life, before.skew_ms) != (after.life, after.skew_ms):
                return
            is_let_in = reply.error_code == ErrorCode.NONE
            known = before.image.tokens.by_id.get(token.id)
            if is_let_in and before.wall_ms >= token.max_at_ms:
                self._complain(token.id, node_id, f"was let in {before.wall_ms - token.max_at_ms} ms after its maximum")
            if is_let_in and not 0 < reply.session_lifetime_ms <= token.max_at_ms - before.wall_ms:
                self._complain(token.id, node_id, f"has a session of {reply.session_lifetime_ms} ms")
            if known == after.image.tokens.by_id.get(token.id):
                self.judged[is_let_in] += 1
                if is_let_in and (known is None or known.is_expired(before.wall_ms)):
                    self._complain(token.id, node_id, f"was let in, and the metadata has {known}")
                if not is_let_in and known is not None and not known.is_expired(after.wall_ms):
                    self._complain(token.id, node_id, f"was refused, and the metadata has {known}")
            is_short = is_let_in and reply.session_lifetime_ms <= LIFE_MS_MAX
            if is_short and self._doors.bootstrap.random.random() < SESSION_SHARE:
                await self._outlive(client, token.id, node_id, reply.session_lifetime_ms / 1000)
        finally:
            client.close()

    async def _outlive(self, client: Client, token_id: str, node_id: int, session_s: float) -> None:
        await asyncio.sleep(session_s * (1 + LATE_SHARE) + LATE_S)
        try:
            await within(client.ask(MetadataRequest(topics=[]), 9))
        except (Closed, TimeoutError):
            self.ended_sessions += 1
        else:
            self._complain(token_id, node_id, "is served after the end of its session")

    def _complain(self, token_id: str, node_id: int, what: str) -> None:
        self._complaints.append(f"the bearer of token {token_id} {what} at node {node_id}")
