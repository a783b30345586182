"""An administrator of users and quotas in a simulated cluster: what was acknowledged is in every image at the end.

Each user and each entity is a register. If nothing was answered, the change may still come, late: such a name is
not used any more, and nothing is promised of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Final, NamedTuple

from moldau.kraft.image.metadata_image import MetadataImage
from moldau.kraft.image.security.scram_credentials import ScramKey
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, OpData, RequestEntryData
from moldau.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from moldau.security.quotas.entity import CLIENT_ID, PRODUCER_BYTE_RATE, QuotaEntity
from moldau.security.sasl.scram.credential import ScramMechanism, salted_password
from moldau.security.sasl.scram.exchange import ScramLogin
from tests.support.cluster_clients import Bootstrap, NotAsked, Told, believed
from tests.support.node import Closed

SHA_256: Final = 1
ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16384
USER: Final = "user"
QUOTA: Final = "quota"
KINDS: Final = (USER, QUOTA)
REGISTERS: Final = 3
"""Of each kind, in use at a time."""
PAUSE_S: Final = 0.4
REMOVED_SHARE: Final = 0.25
OUTSIDE_SHARE: Final = 0.2
"""The share of credentials with too few iterations, or too many."""
OUTSIDE: Final = (1, ITERATIONS_MIN - 1, ITERATIONS_MAX + 1)
LOGINS_MAX: Final = 2 * REGISTERS


class Register(NamedTuple):
    """A user, or the client id of an entity with a quota."""

    kind: str
    name: str


class SecurityAdministrator:
    def __init__(
        self,
        bootstrap: Bootstrap,
        complaints: list[str],
        *,
        told: Told = believed,
        pause_s: float = PAUSE_S,
        kinds: Sequence[str] = KINDS,
    ) -> None:
        """`pause_s`: at most, between two changes. `kinds`: those of the registers."""
        self._bootstrap = bootstrap
        self._complaints = complaints
        self._told = told
        self._pause_s = pause_s
        self._number = 0
        self._in_use = [self._new(kind) for kind in kinds for _ in range(REGISTERS)]
        self._promised: dict[Register, int | None] = {}
        """The iterations of a credential, or the value of a quota; None for one that was removed."""
        self.logins: dict[str, tuple[int, ScramLogin]] = {}
        """The last password that was set for each of the last users, maybe in vain, and its iterations."""
        self.acknowledged_count = 0
        self._outside = Random(f"{bootstrap.random.random()}/outside")

    async def work(self, is_ended: Callable[[], bool]) -> None:
        random = self._bootstrap.random
        while not is_ended():
            register = random.choice(self._in_use)
            self._number += 1
            is_removed = self._promised.get(register) is not None and random.random() < REMOVED_SHARE
            value = None if is_removed else ITERATIONS_MIN + self._number
            try:
                if register.kind == USER and self._outside.random() < OUTSIDE_SHARE:
                    await self._ask_for(register, self._outside.choice(OUTSIDE))
                await self._change(register, value)
            except NotAsked:
                await self._bootstrap.back_off()
            except Closed:
                self._doubt(register)
                await self._bootstrap.back_off()
            await asyncio.sleep(random.random() * self._pause_s)

    def verify(self, node_id: int, image: MetadataImage) -> None:
        """At the end, of the image of each node of a whole cluster."""
        for register, value in self._promised.items():
            found = value_in(image, register)
            if found != value:
                self._complaints.append(
                    f"{register.kind} {register.name} was to have {value}, and has {found} on node {node_id}"
                )

    async def _ask_for(self, register: Register, iterations: int) -> None:
        """The controller refuses iterations that a password may not have."""
        reply = await self._bootstrap.ask_any(credential_change(register.name, iterations), 0)
        if reply.results[0].error_code == ErrorCode.NONE:
            self._complaints.append(f"user {register.name} may have a password with {iterations} iterations")

    async def _change(self, register: Register, value: int | None) -> None:
        if register.kind == USER and value is not None:
            login = ScramLogin(ScramMechanism.SCRAM_SHA_256, register.name, password_of(value))
            self.logins.pop(register.name, None)
            self.logins[register.name] = value, login
            if len(self.logins) > LOGINS_MAX:
                del self.logins[next(iter(self.logins))]
        request = credential_change(register.name, value) if register.kind == USER else quota_change(register, value)
        version = 0 if register.kind == USER else 1
        reply = await self._bootstrap.ask_any(request, version)
        answers = reply.results if register.kind == USER else reply.entries
        if answers[0].error_code != ErrorCode.NONE:
            self._doubt(register)
            return
        self.acknowledged_count += 1
        self._promised[register] = value
        self._told(
            self._bootstrap,
            f"{register.kind} {register.name}: {value}",
            lambda image: value_in(image, register) == value,
        )

    def _doubt(self, register: Register) -> None:
        """Nothing tells what became of the change, nor what will."""
        self._promised.pop(register, None)
        self._in_use[self._in_use.index(register)] = self._new(register.kind)

    def _new(self, kind: str) -> Register:
        self._number += 1
        return Register(kind, f"simulated-{self._number}")


def value_in(image: MetadataImage, register: Register) -> int | None:
    if register.kind == USER:
        credential = image.scram.credentials.get(ScramKey(register.name, SHA_256))
        return None if credential is None else credential.iterations
    values = image.quotas.by_entity.get(QuotaEntity.from_parts([(CLIENT_ID, register.name)]))
    return None if values is None else int(values[PRODUCER_BYTE_RATE])


def credential_change(user: str, iterations: int | None) -> AlterUserScramCredentialsRequest:
    if iterations is None:
        deletion = ScramCredentialDeletion(name=user, mechanism=SHA_256)
        return AlterUserScramCredentialsRequest(deletions=[deletion])
    salt, password = user.encode(), password_of(iterations).encode()
    salted = salted_password(ScramMechanism.SCRAM_SHA_256, password, salt, iterations)
    upsertion = ScramCredentialUpsertion(
        name=user, mechanism=SHA_256, iterations=iterations, salt=salt, salted_password=salted
    )
    return AlterUserScramCredentialsRequest(upsertions=[upsertion])


def password_of(iterations: int) -> str:
    return f"password {iterations}"


def quota_change(register: Register, value: int | None) -> AlterClientQuotasRequest:
    change = OpData(key=PRODUCER_BYTE_RATE, value=float(value or 0), remove=value is None)
    entry = RequestEntryData(
        entity=[EntityData(entity_type=CLIENT_ID, entity_name=register.name)],
        ops=[change],
    )
    return AlterClientQuotasRequest(entries=[entry], validate_only=False)
