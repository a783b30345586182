"""TLS contexts that are renewed when their files change on disk, without a restart.

    every `LOOK_S`      the files of the stores are checked; where one has changed, both contexts are made anew
    cannot be used      the contexts stay as they are, and the log says why, once for each reason
    another name        refused, unless ssl.allow.dn.changes or ssl.allow.san.changes allows it
    authority removed   the connections that it authenticated are closed
    session resumed     the chain that the full handshake verified is checked again: OpenSSL checks nothing then

A new context is used by later connections. Existing connections keep the certificate with which they began.

A client can resume a session of TLS 1.2 by its id, with the session cache of the context; TLS 1.3 and tickets are not
resumed. So the chains of these sessions are remembered, and a resumed handshake ends as a full one would: it fails
where a certificate of the chain has expired, and the removal of its authority closes the connection. A changed store
ends all sessions, because the new context has no session.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from moldau.broker.config.tls import TlsSettings
from moldau.broker.network.tls.contexts import TlsContexts, make_contexts
from moldau.broker.network.tls.stores import InvalidStore
from moldau.security.tls.certificate_names import MalformedCertificate, validity_end_ms

log = logging.getLogger("moldau.listener")

LOOK_S: Final = 1.0
SESSIONS_MAX: Final = 32_768
"""The most sessions whose chains are remembered; the oldest is forgotten, and can then not be resumed. OpenSSL's own
cache holds fewer: 20,480.
"""

Offload = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs blocking work in an executor thread."""


class PeerChain(NamedTuple):
    """The chain of a peer's certificate, as a handshake left it."""

    verified: tuple[bytes, ...]
    """The certificates in DER, the trusted one last. Empty where the handshake resumed a session: OpenSSL verifies
    nothing then.
    """
    session_id: bytes
    """The id by which the peer may resume the session; empty where it cannot."""


class TrustedConnection(Protocol):
    """A connection that a certificate authenticated."""

    def distrusted(self) -> None:
        """Close the connection: the authority of its peer's certificate is not trusted any more."""


class VerifiedChain(NamedTuple):
    """What is remembered of a chain that a full handshake verified."""

    anchor: bytes
    """The trusted certificate at its end, in DER."""
    ends_at_ms: int
    """The time (wall clock, ms) at which the first certificate of the chain expires."""


class FollowedTls:
    """The current contexts of one listener. Raises `InvalidStore` where the stores cannot be used at first."""

    def __init__(self, settings: TlsSettings, wall_clock_ms: Callable[[], int]) -> None:
        self.settings = settings
        self._wall_clock_ms = wall_clock_ms
        self._stamp = self._look()
        self._contexts = make_contexts(settings)
        self._trusting: dict[TrustedConnection, bytes] = {}
        """The connections whose peer presented a certificate, with the trusted certificate of its chain."""
        self._sessions: dict[bytes, VerifiedChain] = {}
        """The chains of the sessions that clients can resume in the current context, the oldest first."""
        self._anchors: dict[bytes, bytes] = {}
        """Each trusted certificate that a chain ended with, once: sessions and connections share its bytes."""
        self._problem: str | None = None

    @property
    def contexts(self) -> TlsContexts:
        return self._contexts

    def server_context(self) -> ssl.SSLContext:
        """The context for a client that connects now."""
        assert self._contexts.server is not None, "a listener that is bound has a key"
        return self._contexts.server

    def client_context(self) -> ssl.SSLContext:
        """The context for a connection of this node that begins now."""
        return self._contexts.client

    def trust(self, connection: TrustedConnection, presented: PeerChain | None) -> str | None:
        """Register a connection that its certificate authenticated, until `forget`. Returns why it is refused; None
        where it is not.
        """
        if presented is None:
            return None
        if presented.verified:
            chain = self._remembered(presented.verified, presented.session_id)
        else:
            resumed = self._sessions.get(presented.session_id)
            if resumed is None:
                return "the session that the client resumes is not known any more"
            if resumed.ends_at_ms <= self._wall_clock_ms():
                return "a certificate of the session that the client resumes has expired"
            chain = resumed
        if not self._trusts(chain.anchor):  # Its handshake began before the authority was removed.
            return "the authority of the peer's certificate is no longer trusted"
        self._trusting[connection] = chain.anchor
        return None

    def _remembered(self, certificates: tuple[bytes, ...], session_id: bytes) -> VerifiedChain:
        """The chain of a full handshake, which is remembered where the client can resume the session."""
        anchor = self._anchors.setdefault(certificates[-1], certificates[-1])
        try:
            ends_at_ms = min(map(validity_end_ms, certificates))
        except MalformedCertificate:  # OpenSSL can read the time, and checks it in the next full handshake.
            ends_at_ms = 0
        chain = VerifiedChain(anchor, ends_at_ms)
        if session_id:
            if len(self._sessions) >= SESSIONS_MAX:
                del self._sessions[next(iter(self._sessions))]
            self._sessions[session_id] = chain
        return chain

    def forget(self, connection: TrustedConnection) -> None:
        self._trusting.pop(connection, None)

    async def look(self, offload: Offload) -> None:
        """Check the files, and renew the contexts where one has changed."""
        stamp = await offload(self._look)
        if stamp == self._stamp:
            return
        try:
            contexts = await offload(partial(make_contexts, self.settings))
        except InvalidStore as problem:
            self._say(str(problem))
            return
        refusal = self._refusal(contexts)
        if refusal is not None:
            self._stamp = stamp
            self._say(refusal)
            return
        self._stamp = stamp
        self._problem = None
        self._contexts = contexts
        self._sessions.clear()
        self._anchors.clear()
        log.info("listener %s uses its changed key store or trust store now", self.settings.listener)
        for connection, anchor in tuple(self._trusting.items()):
            if not self._trusts(anchor):
                connection.distrusted()

    def _look(self) -> tuple[object, ...]:
        """The state of the store files, as values that change when a file is written; None for a missing file."""
        return tuple(_stamp(Path(each)) for each in self._files())

    def _files(self) -> list[str]:
        stores = (self.settings.key_store, self.settings.trust_store)
        return [each.location for each in stores if each.location is not None]

    def _trusts(self, anchor: bytes) -> bool:
        trusted = self._contexts.trusted
        return trusted is None or anchor in trusted

    def _refusal(self, contexts: TlsContexts) -> str | None:
        """Why a new certificate is refused: its names differ from those of the current one.

        None where it is accepted.
        """
        before, after = self._contexts.names, contexts.names
        if before is None or after is None:
            return None
        where = f"{self.settings.key_store.location_name}={self.settings.key_store.location}"
        if after.subject != before.subject and not self.settings.may_change_name:
            return (
                f"{where}: the new certificate is of {after.subject} and the one before of {before.subject}; "
                "ssl.allow.dn.changes=true allows it"
            )
        lost = before.alternatives - after.alternatives
        if lost and not self.settings.may_lose_names:
            return (
                f"{where}: the new certificate lacks the alternative names {', '.join(sorted(lost))}; "
                "ssl.allow.san.changes=true allows it"
            )
        return None

    def _say(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            log.error("listener %s keeps its certificates: %s", self.settings.listener, problem)


async def follow(all_tls: tuple[FollowedTls, ...], offload: Offload) -> None:
    """Check the files of all listeners periodically, as long as the node runs."""
    while True:
        await asyncio.sleep(LOOK_S)
        for each in all_tls:
            await each.look(offload)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
