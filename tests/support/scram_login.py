"""A client of a simulated node that logs in by SCRAM, and the request that gives a user its password."""

from __future__ import annotations

import asyncio
from random import Random

from moldau.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from moldau.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from moldau.protocol.messages.sasl_handshake import SaslHandshakeRequest
from moldau.security.sasl.scram.credential import ITERATIONS_MIN, ScramMechanism, salted_password
from moldau.security.sasl.scram.exchange import ScramClient, ScramLogin
from tests.support.node import Client

random = Random(7)


async def scram_log_in(
    client: Client,
    user: str,
    password: str,
    mechanism: ScramMechanism = ScramMechanism.SCRAM_SHA_256,
    extensions: str = "",
) -> SaslAuthenticateResponse:
    """The last answer of the server; it has an error if the login failed."""
    return await log_in_as(client, ScramLogin(mechanism, user, password), random, extensions)


async def log_in_as(
    client: Client, login: ScramLogin, random: Random, extensions: str = "", pause_s: float = 0
) -> SaslAuthenticateResponse:
    """The same, with a login that remembers its keys, and with a pause after the handshake."""
    machine = ScramClient(login, random.randbytes, extensions)
    offered = await client.ask(SaslHandshakeRequest(mechanism=login.mechanism.mechanism_name), 1)
    assert offered.error_code == 0, offered
    if pause_s:
        await asyncio.sleep(pause_s)
    message: bytes | None = machine.first()
    while True:
        reply: SaslAuthenticateResponse = await client.ask(SaslAuthenticateRequest(auth_bytes=message or b""), 2)
        if reply.error_code:
            return reply
        message = machine.answer(bytes(reply.auth_bytes))
        if message is None:
            return reply


def password_of(
    user: str, password: str, mechanism: ScramMechanism = ScramMechanism.SCRAM_SHA_256
) -> AlterUserScramCredentialsRequest:
    """The user can log in with the password."""
    salt = b"salt of " + user.encode()
    salted = salted_password(mechanism, password.encode(), salt, ITERATIONS_MIN)
    return AlterUserScramCredentialsRequest(
        upsertions=[
            ScramCredentialUpsertion(
                name=user, mechanism=mechanism, iterations=ITERATIONS_MIN, salt=salt, salted_password=salted
            )
        ]
    )


def without_password(
    user: str, mechanism: ScramMechanism = ScramMechanism.SCRAM_SHA_256
) -> AlterUserScramCredentialsRequest:
    """The user can log in no more."""
    return AlterUserScramCredentialsRequest(deletions=[ScramCredentialDeletion(name=user, mechanism=mechanism)])
