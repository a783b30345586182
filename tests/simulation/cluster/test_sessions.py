"""Sessions of clients end when they are to end, and their rule flags one that goes on and one that ends too soon."""

from __future__ import annotations

import pytest

from moldau.broker.network.authentication.sasl import SaslAuthentication
from tests.simulation.cluster.sessions import run_seed
from tests.simulation.invariants.observation import Violation


def test_sessions_are_renewed_and_end() -> None:
    counts = [run_seed(seed) for seed in range(2)]
    assert all(each["renewals"] > 5 and each["ends"] > 5 for each in counts), counts


def test_a_session_that_goes_on_is_flagged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SaslAuthentication, "_expired", lambda self: None)
    with pytest.raises(Violation, match="served"):
        run_seed(0)


def test_a_session_that_ends_too_soon_is_flagged(monkeypatch: pytest.MonkeyPatch) -> None:
    accept = SaslAuthentication._accept
    monkeypatch.setattr(
        SaslAuthentication,
        "_accept",
        lambda self, accepted: accept(self, accepted._replace(session_ms=accepted.session_ms // 2)),
    )
    with pytest.raises(Violation, match="is not served"):
        run_seed(0)
