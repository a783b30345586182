"""The ACLs that the arguments of `moldau acl add` describe."""

from __future__ import annotations

import pytest

from moldau.broker.cli.command import parser
from moldau.broker.cli.daily.acls.rules import acls_to_add
from moldau.broker.cli.daily.failures import WrongArguments
from moldau.security.access import AclOperation, ResourceKind


def added(*words: str) -> set[tuple[str, str, str]]:
    given = parser(None, "acl").parse_args(["acl", "add", "--principal", "User:a", *words])
    return {(ResourceKind(each.kind).name, each.name, AclOperation(each.operation).name) for each in acls_to_add(given)}


def test_a_producer_may_use_its_transactional_id() -> None:
    assert added("--producer", "--topic", "orders", "--transactional-id", "till-1") == {
        *(("TOPIC", "orders", operation) for operation in ("WRITE", "CREATE", "DESCRIBE")),
        *(("TRANSACTIONAL_ID", "till-1", operation) for operation in ("WRITE", "DESCRIBE")),
    }


def test_a_consumer_reads_its_topics_and_its_group() -> None:
    assert added("--consumer", "--topic", "orders", "--group", "kitchen") == {
        ("TOPIC", "orders", "READ"),
        ("TOPIC", "orders", "DESCRIBE"),
        ("GROUP", "kitchen", "READ"),
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--producer", "--group", "kitchen"], "--producer allows nothing on group kitchen: add --operation"),
        (
            ["--consumer", "--topic", "orders", "--transactional-id", "till-1"],
            "--consumer allows nothing on transactional id till-1: add --operation",
        ),
    ],
)
def test_a_resource_on_which_nothing_would_be_allowed_is_refused(words: list[str], said: str) -> None:
    with pytest.raises(WrongArguments, match=said):
        added(*words)
