"""Finds the users that can log in by SCRAM: those in the current metadata, and delegation tokens."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import Final

from moldau.kraft.image.metadata_image import MetadataImage
from moldau.kraft.image.security.scram_credentials import ScramKey
from moldau.security.delegation_token import credential_of_token
from moldau.security.sasl.scram.credential import COMMON_FORM, ScramCredential, ScramForm, ScramMechanism
from moldau.security.sasl.scram.exchange import DRAW_BITS, TokenCredential

REMEMBERED_MAX: Final = 10_000
"""The largest number of cached token credentials. When it is reached, the cache is cleared."""


class MetadataScramUsers:
    """The `ScramUsers` of the current metadata. The credential of a token takes milliseconds to compute, so it is
    cached.
    """

    def __init__(
        self, image: Callable[[], MetadataImage], token_key: bytes | None, wall_clock_ms: Callable[[], int]
    ) -> None:
        """`image`: gives the current metadata. `token_key`: `delegation.token.secret.key`; if it is None, tokens cannot
        log in.
        """
        self._image = image
        self._token_key = token_key
        self._wall_clock_ms = wall_clock_ms
        self._forms: Mapping[int, Mapping[ScramForm, int]] = {}
        """The forms (`scram.forms`) of the image from which `_shares` was computed."""
        self._shares: dict[int, tuple[list[ScramForm], list[int]]] = {}
        """For each mechanism: its forms in a fixed order, and the cumulative numbers of credentials up to and including
        each form.
        """
        self._of_tokens: dict[tuple[ScramMechanism, str], ScramCredential] = {}

    def credential(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        return self._image().scram.credentials.get(ScramKey(user, mechanism))

    def drawn_form(self, mechanism: ScramMechanism, draw: int) -> ScramForm:
        forms = self._image().scram.forms
        if forms is not self._forms:
            self._forms = forms
            self._shares = {}
            for each, counts in forms.items():
                ordered = sorted(counts)
                self._shares[each] = ordered, list(accumulate(counts[form] for form in ordered))
        shares = self._shares.get(mechanism)
        if shares is None:
            return COMMON_FORM
        ordered, ends = shares
        return ordered[bisect_right(ends, draw * ends[-1] >> DRAW_BITS)]

    def token(self, mechanism: ScramMechanism, token_id: str) -> TokenCredential | None:
        token = self._image().tokens.by_id.get(token_id)
        if token is None or self._token_key is None or token.is_expired(self._wall_clock_ms()):
            return None
        known = self._of_tokens.get((mechanism, token_id))
        if known is None:
            if len(self._of_tokens) >= REMEMBERED_MAX:
                self._of_tokens.clear()
            known = credential_of_token(mechanism, token_id, self._token_key)
            self._of_tokens[mechanism, token_id] = known
        return TokenCredential(known, token.owner, min(token.expires_at_ms, token.max_at_ms))

    def __repr__(self) -> str:
        return "MetadataScramUsers"
