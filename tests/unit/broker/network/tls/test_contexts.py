"""Certificates and authorities that are replaced on disk are taken up; what they must not change is refused."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from moldau.broker.config.tls import ClientAuth, TlsSettings
from moldau.broker.network.tls import contexts
from moldau.broker.network.tls.contexts import HandshakeChain, ReloadingTls
from moldau.broker.network.tls.stores import InvalidStore
from tests.support.certificates import Authority, Issued
from tests.support.tls_pair import settings_of

ONE, OTHER = Authority("one"), Authority("other")
NODE = ONE.issue("node", "localhost")
ENDS = datetime(2090, 1, 1, tzinfo=UTC)
CLIENTS = {authority: authority.issue("client", ends=ENDS) for authority in (ONE, OTHER)}


class Peer:
    """A connection that was let in by an authority, in a session that it may resume."""

    def __init__(self, authority: Authority | None, session: bytes = b"", *, is_resumed: bool = False) -> None:
        self._authority = authority
        self._session = session
        self._is_resumed = is_resumed
        self.is_distrusted = False

    def chain(self) -> HandshakeChain | None:
        authority = self._authority
        if authority is None:
            return None
        return HandshakeChain(() if self._is_resumed else (CLIENTS[authority].der, authority.der), self._session)

    def distrusted(self) -> None:
        self.is_distrusted = True


class Directory:
    """The files of a node's stores; each change of one has another time, as on a real disk."""

    def __init__(self, path: Path) -> None:
        self.key, self.trust = path / "node.pem", path / "trust.pem"
        self.put_key(NODE)
        ONE.trust_store(self.trust, OTHER)

    def put_key(self, key: Issued) -> None:
        self._put(self.key, key.pem())

    def trust_only(self, authority: Authority) -> None:
        self._put(self.trust, authority.certificate_pem)

    def _put(self, path: Path, text: str) -> None:
        new = path.with_suffix(".new")
        new.write_text(text)
        new.rename(path)  # another inode

    @property
    def settings(self) -> TlsSettings:
        return settings_of(None, self.trust, ClientAuth.REQUIRED, key_file=self.key)


def followed(settings: TlsSettings) -> ReloadingTls:
    return ReloadingTls(settings, lambda: 0)


def look(tls: ReloadingTls) -> None:
    async def offload(work: Callable[[], object]) -> object:
        return work()

    asyncio.run(tls.check_files(offload))


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    return Directory(tmp_path)


def test_nothing_is_made_anew_while_nothing_changes(directory: Directory) -> None:
    tls = followed(directory.settings)
    before = tls.server_context()
    look(tls)
    assert tls.server_context() is before


def test_a_renewed_certificate_is_taken_up(directory: Directory) -> None:
    tls = followed(directory.settings)
    server, client = tls.server_context(), tls.client_context()
    directory.put_key(ONE.issue("node", "localhost", "also.example"))
    look(tls)
    assert tls.server_context() is not server and tls.client_context() is not client


def test_an_authority_that_goes_ends_the_connections_that_it_let_in(directory: Directory) -> None:
    tls = followed(directory.settings)
    stays, goes, anonymous, gone = Peer(ONE), Peer(OTHER), Peer(None), Peer(OTHER)
    for peer in (stays, goes, anonymous, gone):
        assert tls.register(peer, peer.chain()) is None
    tls.forget(gone)
    directory.trust_only(ONE)
    look(tls)
    assert [peer.is_distrusted for peer in (stays, goes, anonymous, gone)] == [False, True, False, False]
    late = Peer(OTHER)
    assert tls.register(late, late.chain()) == "the authority of the peer's certificate is no longer trusted"


def test_a_resumed_session_counts_as_the_chain_of_its_full_handshake(directory: Directory) -> None:
    tls = followed(directory.settings)
    peers = [Peer(OTHER, b"one"), Peer(OTHER, b"one", is_resumed=True), Peer(ONE, b"two", is_resumed=True)]
    refusals = [tls.register(peer, peer.chain()) for peer in peers]
    assert refusals == [None, None, "the session that the client resumes is not known any more"]
    directory.trust_only(ONE)
    look(tls)
    assert [peer.is_distrusted for peer in peers] == [True, True, False]
    late = Peer(OTHER, b"one", is_resumed=True)
    assert tls.register(late, late.chain()) == "the session that the client resumes is not known any more"


def test_a_session_is_not_resumed_after_its_certificate_has_expired(directory: Directory) -> None:
    now_ms = int(ENDS.timestamp()) * 1000 - 1
    tls = ReloadingTls(directory.settings, lambda: now_ms)
    full, early, late = Peer(ONE, b"one"), *(Peer(ONE, b"one", is_resumed=True) for _ in range(2))
    assert tls.register(full, full.chain()) is tls.register(early, early.chain()) is None
    now_ms += 1
    assert tls.register(late, late.chain()) == "a certificate of the session that the client resumes has expired"


def test_the_oldest_of_too_many_sessions_is_forgotten(directory: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contexts, "SESSIONS_MAX", 2)
    tls = followed(directory.settings)
    for session in (b"one", b"two", b"three"):
        peer = Peer(ONE, session)
        assert tls.register(peer, peer.chain()) is None
    resumed = [Peer(ONE, session, is_resumed=True) for session in (b"one", b"two", b"three")]
    assert [tls.register(peer, peer.chain()) is None for peer in resumed] == [False, True, True]


@pytest.mark.parametrize("hosts", [("localhost",), ()])
def test_a_certificate_of_another_name_is_refused(
    directory: Directory, hosts: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    tls = followed(directory.settings)
    before = tls.server_context()
    directory.put_key(ONE.issue("other" if hosts else "node", *hosts))
    with caplog.at_level(logging.ERROR):
        look(tls)
        look(tls)
    assert tls.server_context() is before
    (record,) = caplog.records
    setting = "ssl.allow.dn.changes" if hosts else "ssl.allow.san.changes"
    assert setting in record.getMessage() and str(directory.key) in record.getMessage()
    allowed = followed(replace(directory.settings, may_change_name=True, may_lose_names=True))
    directory.put_key(ONE.issue("third"))
    made = allowed.server_context()
    look(allowed)
    assert allowed.server_context() is not made


def write_half_of_the_key(directory: Directory) -> None:
    directory.key.write_text(NODE.certificate_pem)


def damage_the_authorities(directory: Directory) -> None:
    """A base64 text between the right lines, and no certificate."""
    begin, first, *_, end = OTHER.certificate_pem.splitlines()
    directory.trust.write_text("\n".join([ONE.certificate_pem, begin, first, end]))


@pytest.mark.parametrize("breaks", [write_half_of_the_key, damage_the_authorities])
def test_a_file_that_cannot_be_used_changes_nothing_until_it_can(
    breaks: Callable[[Directory], None], directory: Directory, caplog: pytest.LogCaptureFixture
) -> None:
    """An exception would stop the node."""
    tls = followed(directory.settings)
    before = tls.server_context()
    breaks(directory)
    with pytest.raises(InvalidStore, match=r"node\.pem|trust\.pem"):
        followed(directory.settings)
    with caplog.at_level(logging.ERROR):
        look(tls)
        look(tls)
    assert tls.server_context() is before and len(caplog.records) == 1
    directory.put_key(NODE)
    directory.trust_only(ONE)
    look(tls)
    assert tls.server_context() is not before


def test_a_file_is_read_later_if_no_descriptor_is_left(
    directory: Directory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(contents: bytes) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    tls = followed(directory.settings)
    before = tls.server_context()
    directory.put_key(NODE)
    with monkeypatch.context() as patch:
        patch.setattr(contexts, "memory_file", refuse)
        look(tls)
    assert tls.server_context() is before and "Too many open files" in caplog.text
    look(tls)
    assert tls.server_context() is not before
