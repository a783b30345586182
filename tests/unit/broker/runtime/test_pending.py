"""A reply that is not ready yet: completed once, listened to before or after, or given up."""

from __future__ import annotations

import pytest

from moldau.broker.runtime.pending import Pending


def test_the_listener_hears_of_a_response_that_comes_later() -> None:
    heard: list[int] = []
    reply: Pending[int] = Pending()
    reply.listen(heard.append)
    assert heard == [] and not reply.is_complete
    reply.complete(7)
    assert heard == [7] and reply.is_complete


def test_the_listener_hears_at_once_of_a_response_that_is_there() -> None:
    heard: list[int] = []
    reply: Pending[int] = Pending()
    reply.complete(7)
    reply.listen(heard.append)
    assert heard == [7]


def test_a_reply_is_completed_once() -> None:
    reply: Pending[int] = Pending()
    reply.complete(7)
    with pytest.raises(AssertionError):
        reply.complete(8)


def test_a_reply_that_nobody_waits_for_says_so_once_and_may_still_be_completed() -> None:
    heard: list[int] = []
    reply: Pending[int] = Pending(lambda: heard.append(-1))
    reply.listen(heard.append)
    reply.abandon()
    reply.abandon()
    reply.complete(7)
    assert heard == [-1]


def test_a_reply_that_was_completed_is_not_given_up() -> None:
    heard: list[int] = []
    reply: Pending[int] = Pending(lambda: heard.append(-1))
    reply.complete(7)
    reply.abandon()
    assert heard == []


def test_a_reply_that_is_given_up_gives_up_what_it_follows_later() -> None:
    heard: list[int] = []
    reply: Pending[int] = Pending()
    reply.abandon()
    later: Pending[int] = Pending(lambda: heard.append(-1))
    reply.follow(later)
    later.complete(7)
    assert heard == [-1]
