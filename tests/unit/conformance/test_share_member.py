"""What must hold of the deliveries of a share group: none after an acknowledgement that ends the record."""

from __future__ import annotations

from typing import cast

from tests.conformance.client import Client
from tests.conformance.record import Json
from tests.conformance.share_member import ShareMember, confirmed_ends, deliveries_after_end, deliveries_by_place


class Told:
    """A client whose member was given these deliveries and confirmations."""

    def __init__(self, delivered: list[Json], confirmed: list[Json]) -> None:
        self._state: Json = {"delivered": delivered, "confirmed": confirmed}

    def call(self, op: str, **args: Json) -> Json:
        return self._state if op == "share_state" else None


def member(name: str, delivered: list[tuple[int, int, str]], confirmed: list[int]) -> ShareMember:
    """`delivered`: count, time and value of deliveries of the record at 0-7; `confirmed`: times of confirmations."""
    given: list[Json] = [{"p": 0, "o": 7, "n": count, "t": at_ms, "v": value} for count, at_ms, value in delivered]
    ends: list[Json] = [{"p": 0, "o": 7, "t": at_ms} for at_ms in confirmed]
    found = ShareMember(cast("Client", Told(given, ends)), name, "group", "topic", count=1)
    found.look()
    return found


def test_a_record_that_comes_again_after_a_lost_acknowledgement_is_in_order() -> None:
    members = [member("a", [(1, 100, "1:accept")], []), member("b", [(2, 200, "1:accept")], [250])]
    assert deliveries_after_end(members) == []
    assert confirmed_ends(members) == {(0, 7): (250, 2)}
    assert [each.count for each in deliveries_by_place(members)[0, 7]] == [1, 2]


def test_a_record_that_comes_again_after_it_was_accepted_is_found() -> None:
    members = [member("a", [(1, 100, "1:accept")], [150]), member("b", [(2, 200, "1:accept")], [])]
    assert [each.count for each in deliveries_after_end(members)] == [2]


def test_a_member_is_told_before_it_dies_that_it_is_looked_at_for_the_last_time() -> None:
    asked: list[Json] = []

    class Driver(Told):
        def call(self, op: str, **args: Json) -> Json:
            asked.append(args)
            return super().call(op, **args)

    ShareMember(cast("Client", Driver([], [])), "a", "group", "topic", count=1).look_before_death()
    assert asked[-1] == {"member": "a", "last": True}


def test_a_released_record_comes_again() -> None:
    members = [member("a", [(1, 100, "1:late")], [150]), member("b", [(2, 200, "1:late")], [])]
    assert deliveries_after_end(members) == []
