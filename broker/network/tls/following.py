"""TLS contexts that follow their files: what is replaced on disk is taken up without a restart.

    every `LOOK_S`      the files of the stores are looked at; where one has changed, both contexts are made anew
    cannot be used      the contexts stay as they are, and the log says why, once for each reason
    another name        refused, unless ssl.allow.dn.changes or ssl.allow.san.changes allows it
    an authority gone   the connections that it let in end

A new context counts for the connections that begin after it. The others go on with the certificate of their beginning.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from broker.config.tls import TlsSettings
from broker.network.tls.contexts import TlsContexts, make_contexts
from broker.network.tls.stores import InvalidStore

log = logging.getLogger("moldau.listener")

LOOK_S: Final = 1.0

Offload = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs blocking work in an executor thread."""


class TrustedConnection(Protocol):
    """A connection that was let in by a certificate."""

    def trusted_by(self) -> bytes | None:
        """The trusted certificate at the end of its peer's chain; None where the peer showed none."""

    def distrusted(self) -> None:
        """That certificate is trusted no more: the connection ends."""


class FollowedTls:
    """The contexts of one listener, as its files are now. Raises `InvalidStore` where they cannot be used at first."""

    def __init__(self, settings: TlsSettings) -> None:
        self.settings = settings
        self._stamp = self._look()
        self._contexts = make_contexts(settings)
        self._trusting: dict[TrustedConnection, bytes] = {}
        """The connections with a certificate of their peer, and by which it is trusted."""
        self._problem: str | None = None

    @property
    def contexts(self) -> TlsContexts:
        return self._contexts

    def server_context(self) -> ssl.SSLContext:
        """For a client that connects now."""
        assert self._contexts.server is not None, "a listener that is bound has a key"
        return self._contexts.server

    def client_context(self) -> ssl.SSLContext:
        """For a node to connect to now."""
        return self._contexts.client

    def trust(self, connection: TrustedConnection) -> None:
        """Note a connection that was let in by its certificate, until `forget`."""
        anchor = connection.trusted_by()
        if anchor is not None:
            self._trusting[connection] = anchor
            if not self._trusts(anchor):  # its handshake began before the authority was removed
                connection.distrusted()

    def forget(self, connection: TrustedConnection) -> None:
        self._trusting.pop(connection, None)

    async def look(self, offload: Offload) -> None:
        """Take up what has changed on disk."""
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
        log.info("listener %s has taken up its changed key store or trust store", self.settings.listener)
        for connection, anchor in tuple(self._trusting.items()):
            if not self._trusts(anchor):
                connection.distrusted()

    def _look(self) -> tuple[object, ...]:
        """Changes with the files; None for one that is not there."""
        return tuple(_stamp(Path(each)) for each in self._files())

    def _files(self) -> list[str]:
        stores = (self.settings.key_store, self.settings.trust_store)
        return [each.location for each in stores if each.location is not None]

    def _trusts(self, anchor: bytes) -> bool:
        trusted = self._contexts.trusted
        return trusted is None or anchor in trusted

    def _refusal(self, contexts: TlsContexts) -> str | None:
        """Why a certificate is not taken up: it is for something else than the one before."""
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
    """Look at the files of all listeners for as long as the node runs."""
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
