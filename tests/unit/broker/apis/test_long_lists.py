"""Handlers of requests with long lists: the work for an element does not grow with the number of elements."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from moldau.broker.apis.security import describe_user_scram_credentials
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from tests.support.short_answers import short_answers

COUNT = 500


class Name(str):
    """A name that counts how often a name was compared with another."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        Name.compared += 1
        return str.__eq__(self, cast("str", other))

    __hash__ = str.__hash__


def names() -> list[Name]:
    Name.compared = 0
    return [Name(f"n{number}") for number in range(COUNT)]


def test_users_with_credentials_are_looked_up_once_each() -> None:
    services = SimpleNamespace(
        cluster=SimpleNamespace(image=SimpleNamespace(scram=SimpleNamespace(credentials={}))),
        long_requests=short_answers(),
    )
    users = [UserName(name=name) for name in names()]
    request = DescribeUserScramCredentialsRequest(users=[*users, UserName(name=Name("n7"))])
    response: Any = describe_user_scram_credentials.handle(cast("Any", services), cast("Any", None), request)
    assert len(response.results) == COUNT
    assert response.results[7].error_code == ErrorCode.DUPLICATE_RESOURCE
    assert Name.compared < 5 * COUNT
