"""The delegation tokens of the cluster (KIP-48, KIP-900). The metadata does not have their secrets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from moldau.kraft.image.persistent_map import PersistentMap, hash_of_text
from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.records.metadata import DelegationTokenRecord, RemoveDelegationTokenRecord
from moldau.security.delegation_token import DelegationToken
from moldau.security.principal import Principal


class TokensImage(NamedTuple):
    """The delegation tokens by id, including expired tokens that no record has removed yet."""

    by_id: PersistentMap[str, DelegationToken] = PersistentMap(hash_of_text)

    def visible(
        self, owners: Sequence[Principal] | None, principal: Principal, may_describe: Callable[[DelegationToken], bool]
    ) -> list[DelegationToken]:
        """The tokens that a principal may see: those that it owns, requested or may renew, and those that
        `may_describe` allows.

        If `owners` is not None, a token is left out unless one of these principals owns it, requested it or may renew
        it.
        """
        return [
            token
            for token in self.by_id.values()
            if (owners is None or any(token.is_known_to(owner) for owner in owners))
            and (token.is_known_to(principal) or may_describe(token))
        ]

    def snapshot_records(self) -> Iterator[object]:
        for token in self.by_id.values():
            yield record_of(token)


class TokensDelta:
    """The tokens that records changed, by id; None for a removed token."""

    __slots__ = ("changed", "image")

    def __init__(self, image: TokensImage) -> None:
        self.image = image
        self.changed: dict[str, DelegationToken | None] = {}

    def replay(self, record: DelegationTokenRecord) -> None:
        self.changed[record.token_id] = DelegationToken(
            record.token_id,
            _principal(record.owner),
            _principal(record.requester),
            tuple(_principal(renewer) for renewer in record.renewers),
            record.issue_timestamp,
            record.max_timestamp,
            record.expiration_timestamp,
        )

    def replay_remove(self, record: RemoveDelegationTokenRecord) -> None:
        self.changed[record.token_id] = None

    def apply(self) -> TokensImage:
        return TokensImage(self.image.by_id.with_changes(self.changed)) if self.changed else self.image


def _principal(text: str) -> Principal:
    """Decode the text of a principal in a record; its type and its name may be empty. Raises `MalformedMessage`."""
    kind, colon, name = text.partition(":")
    if not colon:
        raise MalformedMessage(f"{text!r} is not a principal")
    return Principal(kind, name)


def record_of(token: DelegationToken) -> DelegationTokenRecord:
    return DelegationTokenRecord(
        owner=str(token.owner),
        requester=str(token.requester),
        renewers=[str(renewer) for renewer in token.renewers],
        issue_timestamp=token.issued_at_ms,
        max_timestamp=token.max_at_ms,
        expiration_timestamp=token.expires_at_ms,
        token_id=token.id,
    )
