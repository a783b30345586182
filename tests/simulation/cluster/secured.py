"""The secured part of a swarm: an authorizer, administrators of ACLs, users, quotas and tokens, and clients with few
permissions that log in.

The clients of the rest of the swarm are anonymous, and super users.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from moldau.protocol.records.metadata import UserScramCredentialRecord
from moldau.security.principal import USER, Principal
from moldau.security.sasl.scram.credential import ITERATIONS_MIN, ScramMechanism, credential_of_password
from moldau.security.sasl.scram.exchange import ScramLogin
from tests.simulation.cluster.plan import Plan
from tests.simulation.invariants.observation import Violation
from tests.support.cluster_clients import Bootstrap
from tests.support.node import Closed
from tests.support.security.acl_administrator import TOPIC, USERS, AclAdministrator
from tests.support.security.logins import Doors, LoggedInUser, TokenBearer, UserLogins
from tests.support.security.restricted_client import RestrictedClient
from tests.support.security.token_holder import SWEEP_MS, TokenHolder
from tests.support.security_administrator import KINDS, SHA_256, SecurityAdministrator
from tests.support.security_administrator import USER as USER_KIND

if TYPE_CHECKING:
    from tests.support.cluster import Cluster

TRIES: Final = 20
QUOTAS_SHARE: Final = 0.5
"""The share of runs with quotas: as long as there is one, brokers serve clients in another way."""
SWEPT_S: Final = 20.0
"""How long a token may stay in the metadata of a healed cluster after its maximum."""
OVERDUE_MS: Final = 3 * SWEEP_MS


def password_of(user: str) -> str:
    return f"password of {user}"


def credentials() -> tuple[UserScramCredentialRecord, ...]:
    """The users that can log in from the first start on; their passwords never change."""
    made = []
    for user in USERS:
        salt = user.encode()
        known = credential_of_password(ScramMechanism.SCRAM_SHA_256, password_of(user), salt, ITERATIONS_MIN)
        made.append(
            UserScramCredentialRecord(
                name=user,
                mechanism=SHA_256,
                salt=salt,
                stored_key=known.stored_key,
                server_key=known.server_key,
                iterations=known.iterations,
            )
        )
    return tuple(made)


class Secured:
    """`bootstrap_of` gives each client its own way to the cluster, by its name."""

    def __init__(
        self, cluster: Cluster, plan: Plan, bootstrap_of: Callable[[str], Bootstrap], complaints: list[str]
    ) -> None:
        self._cluster = cluster
        self._plan = plan
        self._complaints = complaints
        users = bootstrap_of("security")
        kinds = KINDS if users.random.random() < QUOTAS_SHARE else (USER_KIND,)
        self._users = SecurityAdministrator(users, complaints, pause_s=2 * plan.security_pause_s, kinds=kinds)
        self._acls = AclAdministrator(bootstrap_of("acls"), complaints, pause_s=2 * plan.security_pause_s)
        logins = {user: ScramLogin(ScramMechanism.SCRAM_SHA_256, user, password_of(user)) for user in USERS}
        self.clients = [
            RestrictedClient(
                Principal(USER, user),
                bootstrap_of(user),
                cluster,
                partial(Doors(cluster, bootstrap_of(f"{user}-logins")).opened, login=login),
                complaints,
            )
            for user, login in logins.items()
        ]
        holder = bootstrap_of("holder")
        self._holder = TokenHolder(LoggedInUser(Doors(cluster, holder), logins[USERS[0]]), holder, complaints)
        self.bearer = TokenBearer(Doors(cluster, bootstrap_of("bearer")), self._holder, complaints)
        self.user_logins = UserLogins(Doors(cluster, bootstrap_of("user-logins")), self._users, complaints)

    async def begin(self, is_ended: Callable[[], bool]) -> list[asyncio.Task[None]]:
        """Create the topic, and start the clients."""
        if not self._plan.changes_security:
            return []
        await self._cluster.create(TOPIC, 1, 3, **{"retention.ms": "-1"})
        pause_s = self._plan.security_pause_s
        work = [
            self._users.work(is_ended),
            self._acls.work(is_ended),
            self._holder.work(is_ended),
            self.bearer.work(is_ended, 5 * pause_s),
            self.user_logins.work(is_ended, 5 * pause_s),
            *(client.work(is_ended, pause_s) for client in self.clients),
        ]
        return [asyncio.get_running_loop().create_task(each) for each in work]

    async def verify(self) -> None:
        """At the end, of a whole cluster: raises `Violation`, or leaves complaints."""
        if not self._plan.changes_security:
            return
        for node in self._cluster.nodes.values():
            if node.is_up and node.broker is not None:
                self._users.verify(node.id, node.broker.quorum.image)
                self._acls.verify(node.id, node.broker.quorum.image)
        for node_id in self.clients[0].node_ids:
            for client in self.clients:
                await self._insist(partial(client.try_all, node_id))
            for user in [*self._users.logins]:
                await self._insist(partial(self.user_logins.try_one, user, node_id))
        try:
            await self._cluster.until(lambda: not [*self._overdue()], "tokens that end at their maximum", SWEPT_S)
        except AssertionError as error:
            raise Violation(f"not live: {SWEPT_S:.0f} s later there are still {[*self._overdue()]}") from error

    @staticmethod
    async def _insist(act: Callable[[], Awaitable[None]]) -> None:
        for _ in range(TRIES):
            try:
                await act()
                return
            except Closed:
                await asyncio.sleep(0.1)
        raise Violation(f"not live: {TRIES} logins in a healed cluster were not answered")

    def _overdue(self) -> Iterator[str]:
        leader = self._cluster.leader_of_quorum()
        if leader is None or leader.broker is None:
            yield "no controller"
            return
        now_ms = leader.host.wall_ms()
        for token in leader.broker.quorum.image.tokens.by_id.values():
            if token.max_at_ms + OVERDUE_MS < now_ms:
                yield f"{token}"
