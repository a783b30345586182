"""Hostile conversations before authentication, each on a connection of its own. A process of its own.

None of them has valid credentials, and each ends with a request that only an authenticated client may send: if the
answer to that names a broker, the outcome is SERVED.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import ssl
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from moldau.protocol.compiler import encode
from moldau.protocol.frames import request_head
from moldau.protocol.messages.metadata import MetadataRequest, MetadataResponse
from moldau.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from moldau.protocol.messages.sasl_handshake import SaslHandshakeRequest
from moldau.security.sasl.oauthbearer.exchange import bearer_message
from tests.fuzz.inputs import framed
from tests.fuzz.mutation import mutate
from tests.fuzz.requests import RequestMaker, Surroundings

PATIENCE_S: Final = 0.5
MARK: Final = 0x5EC12E7
"""The correlation id of the request that must not be served."""
REFUSED: Final = MARK.to_bytes(4, "big") + encode(MetadataResponse(brokers=[], controller_id=-1, topics=[]), 1)


def client_hello() -> bytes:
    """The first message of an honest TLS client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


CLIENT_HELLO: Final = client_hello()
NUMBERS: Final[tuple[object, ...]] = (0, -1, 1 << 31, 1 << 63, 1e308, -0.0, True, None, "1", [], {})
Frames = list[bytes]


def request(key: int, version: int, body: bytes, correlation_id: int = 1) -> bytes:
    return framed(request_head(key, version, correlation_id) + body)


LAST: Final = request(3, 1, encode(MetadataRequest(topics=[]), 1), MARK)


def handshake(mechanism: str) -> bytes:
    return request(17, 1, encode(SaslHandshakeRequest(mechanism=mechanism), 1))


def token(message: bytes) -> bytes:
    return request(36, 1, encode(SaslAuthenticateRequest(auth_bytes=message), 1))


class Conversations:
    """Draws conversations of all kinds."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._requests = RequestMaker(chance, Surroundings())
        self.kinds: dict[str, Callable[[], Frames]] = {
            "frames": lambda: [framed(chance.randbytes(chance.randrange(64)))],
            "other requests": lambda: [framed(self._requests.frame())],
            "mutated handshake": lambda: [self.bent(handshake("PLAIN"))],
            "mechanism": lambda: [handshake(chance.choice(("GSSAPI", "", "plain", "x" * 32767)))],
            "plain": lambda: [handshake("PLAIN"), token(self.bent(b"\0alice\0wrong"))],
            "scram first": lambda: [handshake("SCRAM-SHA-256"), token(self.bent(b"n,,n=alice,r=fyko+d2lbbFgONRv9qkx"))],
            "scram final": self.scram_final,
            "tokens": lambda: [handshake("OAUTHBEARER"), token(bearer_message(self.jwt(), {})), token(b"\x01")],
            "bearer": lambda: [handshake("OAUTHBEARER"), token(self.bent(bearer_message(self.jwt(), {"a": "b"})))],
            "tls": lambda: [self.bent(CLIENT_HELLO)],
            "half open": lambda: [CLIENT_HELLO[: chance.randrange(len(CLIENT_HELLO))]],
        }

    def bent(self, data: bytes) -> bytes:
        return mutate(self._chance, data)

    def scram_final(self) -> Frames:
        name = self._chance.choice(("alice", "mallory"))
        final = self.bent(b"c=biws,r=fyko+d2lbbFgONRv9qkx,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
        return [handshake("SCRAM-SHA-256"), token(f"n,,n={name},r=fyko".encode()), token(final)]

    def jwt(self) -> str:
        """Parts that are nearly those of a token, never with a signature that is one."""
        chance = self._chance
        header = {"alg": chance.choice(("RS256", "ES256", "HS256", "none", "", 7)), "kid": chance.choice(("r", None))}
        claims = {"sub": "alice", "exp": chance.choice(NUMBERS), "iat": chance.choice(NUMBERS), "aud": "kafka"}
        parts = [json.dumps(each).encode() for each in (header, claims)]
        if chance.random() < 0.3:
            parts[chance.randrange(2)] = b"[" * chance.randrange(20_000)
        if chance.random() < 0.3:
            parts = [self.bent(each) for each in parts]
        texts = [urlsafe_b64encode(each).decode().rstrip("=") for each in (*parts, chance.randbytes(256))]
        return ".".join(texts)


class LoginAttack:
    """Shares out a number of conversations among tasks."""

    def __init__(self, host: str, port: int, tls_port: int, left: int, seed: int) -> None:
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self._host = host
        self._ports = {"tls": tls_port, "half open": tls_port}
        self._port = port
        self._left = left
        self._seed = seed

    async def run(self, tasks: int) -> None:
        await asyncio.gather(*(self._attacker(number) for number in range(tasks)))

    async def _attacker(self, number: int) -> None:
        chance = random.Random(f"{self._seed}/{number}")
        conversations = Conversations(chance)
        kinds = list(conversations.kinds)
        while self._left > 0:
            self._left -= 1
            kind = chance.choice(kinds)
            frames = conversations.kinds[kind]()
            try:
                reader, writer = await asyncio.open_connection(self._host, self._ports.get(kind, self._port))
            except OSError:
                self.outcomes[kind, "no connection"] += 1
                await asyncio.sleep(0.1)
                continue
            outcome = "half open" if kind == "half open" else await self._spoken(reader, writer, frames)
            if kind == "half open":
                writer.write(frames[0])
            self.outcomes[kind, outcome] += 1
            writer.transport.abort()

    async def _spoken(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, frames: Frames) -> str:
        with suppress(asyncio.IncompleteReadError, OSError):
            try:
                async with asyncio.timeout(PATIENCE_S):
                    for each in frames:
                        writer.write(each)
                    writer.write(LAST)
                    while True:
                        size = int.from_bytes(await reader.readexactly(4), "big")
                        answer = await reader.readexactly(size)
                        if answer[:4] == MARK.to_bytes(4, "big"):
                            return "refused" if answer == REFUSED else "SERVED"
            except TimeoutError:
                return "waiting"
        return "closed"


def main() -> None:
    """The outcomes as JSON at the end: kind, outcome, count."""
    parser = argparse.ArgumentParser()
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("tls_port", type=int)
    parser.add_argument("inputs", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--connections", type=int, default=32)
    given = parser.parse_args()
    attack = LoginAttack(given.host, given.port, given.tls_port, given.inputs, given.seed)
    import uvloop

    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))  # as if on another machine
    uvloop.run(attack.run(given.connections))
    print(json.dumps([[kind, outcome, count] for (kind, outcome), count in sorted(attack.outcomes.items())]))


if __name__ == "__main__":
    main()
