"""The rule about sessions flags a broker that is fenced too late or too early, and no other."""

from __future__ import annotations

import pytest

from tests.simulation.controller.contacts import Contacts
from tests.simulation.invariants.observation import Violation

SESSION_MS = 1000


def heard_at(*times_ms: int, hurries: bool = False) -> Contacts:
    contacts = Contacts(SESSION_MS, hurries=hurries)
    contacts.registered(1, 0)
    for each in times_ms:
        contacts.heard(1, each)
    return contacts


def test_a_silent_broker_is_to_be_fenced() -> None:
    heard_at(500).check({1}, {1}, 1499)
    with pytest.raises(Violation, match="silent for 1000 ms, and not fenced"):
        heard_at(500).check({1}, {1}, 1500)
    heard_at(500).check({1}, set(), 1500)


def test_a_broker_that_is_heard_from_is_not_to_be_fenced() -> None:
    with pytest.raises(Violation, match="fenced after 999 ms"):
        heard_at(500).check({1}, set(), 1499)


def test_a_broker_that_seems_gone_is_to_be_fenced_sooner() -> None:
    for hurries in (False, True):
        contacts = heard_at(100, 200, hurries=hurries)
        contacts.lost(1, 250)
        contacts.check({1}, {1}, 749)
        if hurries:
            with pytest.raises(Violation, match="seems gone for 500 ms"):
                contacts.check({1}, {1}, 750)
            contacts.heard(1, 760)
        contacts.check({1}, {1}, 800)


def test_a_new_controller_waits_for_a_whole_session() -> None:
    contacts = heard_at(100)
    contacts.begin_anew([1], 900)
    contacts.check({1}, {1}, 1899)
    with pytest.raises(Violation):
        contacts.check({1}, {1}, 1900)
