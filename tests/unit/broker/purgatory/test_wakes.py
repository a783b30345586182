"""Wakes: gathered while a connection handles what arrived, one look for each who was woken."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from broker.purgatory.wakes import Wakes


class Sleeper:
    def __init__(self, looks: list[str], name: str, then: Callable[[], None] = lambda: None) -> None:
        self.looks = looks
        self.name = name
        self.then = then

    def look(self) -> None:
        self.looks.append(self.name)
        self.then()


class Turns:
    """The loop: what is to run in its next turn."""

    def __init__(self) -> None:
        self.next: list[Callable[[], None]] = []
        self.wakes = Wakes(cast("asyncio.AbstractEventLoop", SimpleNamespace(call_soon=self.next.append)))

    def turn(self) -> None:
        due, self.next[:] = list(self.next), []
        for each in due:
            each()


def test_while_wakes_are_gathered_nobody_looks_and_then_each_once() -> None:
    loop, looks = Turns(), list[str]()
    one, two = Sleeper(looks, "one"), Sleeper(looks, "two")
    loop.wakes.gather()
    for each in (one, two, one):
        loop.wakes.wake(each)
    assert not looks
    loop.wakes.let_go()
    assert looks == ["one", "two"] and not loop.next


def test_outside_of_that_they_look_in_the_next_turn() -> None:
    loop, looks = Turns(), list[str]()
    one = Sleeper(looks, "one")
    loop.wakes.wake(one)
    loop.wakes.wake(one)
    assert not looks and len(loop.next) == 1
    loop.turn()
    assert looks == ["one"]


def test_who_is_woken_by_a_look_looks_in_the_next_turn() -> None:
    loop, looks = Turns(), list[str]()
    two = Sleeper(looks, "two")
    one = Sleeper(looks, "one", lambda: loop.wakes.wake(two))
    loop.wakes.gather()
    loop.wakes.wake(one)
    loop.wakes.let_go()
    assert looks == ["one"]
    loop.turn()
    assert looks == ["one", "two"]


def test_what_was_to_be_done_later_and_is_done_by_then_is_nothing() -> None:
    loop, looks = Turns(), list[str]()
    loop.wakes.wake(Sleeper(looks, "one"))
    loop.wakes.gather()
    loop.wakes.let_go()
    loop.turn()
    assert looks == ["one"]


def test_a_look_that_fails_takes_nobody_with_it() -> None:
    loop, looks = Turns(), list[str]()

    def fail() -> None:
        raise ZeroDivisionError("a bug")

    loop.wakes.gather()
    for each in (Sleeper(looks, "one", fail), Sleeper(looks, "two")):
        loop.wakes.wake(each)
    with pytest.raises(ZeroDivisionError):
        loop.wakes.let_go()
    assert looks == ["one"]
    loop.turn()
    assert looks == ["one", "two"]
