"""`moldau acl explain`: the rule that decides, in words and as an exit status."""

from __future__ import annotations

from pathlib import Path

import pytest

from moldau.broker.cli.command import main
from moldau.broker.cli.daily.acls import explaining
from moldau.security.acl.bindings import AclBinding

READ, WRITE = 3, 4
ALLOW, DENY = 3, 2
LITERAL, PREFIXED = 3, 4
TOPIC = 2
ACLS = [
    AclBinding(TOPIC, "orders", LITERAL, "User:alice", "*", READ, ALLOW),
    AclBinding(TOPIC, "orders", LITERAL, "User:alice", "*", WRITE, ALLOW),
    AclBinding(TOPIC, "ord", PREFIXED, "User:*", "*", WRITE, DENY),
]


@pytest.fixture(autouse=True)
def _cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explaining, "bindings_of", lambda client, wanted: ACLS)


def explain(*words: str) -> int:
    return main(["acl", "explain", "--bootstrap", "127.0.0.1:9092", *words])


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (
            ("--principal", "User:alice", "--operation", "Read", "--topic", "orders"),
            0,
            "allowed: an ALLOW matches: ALLOW User:alice from * READ on LITERAL TOPIC orders",
        ),
        (
            ("--principal", "User:alice", "--operation", "write", "--topic", "orders"),
            explaining.EXIT_DENIED,
            "denied: a DENY matches: DENY User:* from * WRITE on PREFIXED TOPIC ord",
        ),
        (
            ("--principal", "User:bob", "--operation", "Read", "--group", "g"),
            explaining.EXIT_DENIED,
            "denied: no ACL matches",
        ),
        (
            ("--principal", "User:bob", "--operation", "ClusterAction", "--cluster"),
            explaining.EXIT_DENIED,
            "denied: no ACL",
        ),
    ],
)
def test_the_rule_that_decides_is_named(
    words: tuple[str, ...], status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert explain(*words) == status
    assert capsys.readouterr().out.startswith(said)


def test_the_super_users_are_those_of_a_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "server.properties"
    file.write_text("super.users=User:root;User:broker\n")
    assert explain("-c", str(file), "--principal", "User:root", "--operation", "Alter", "--cluster") == 0
    assert "the principal is a super user" in capsys.readouterr().out


def test_what_cannot_be_asked_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert explain("--principal", "User:a", "--operation", "Fly", "--cluster") == 2
    assert "there is no operation Fly" in capsys.readouterr().err
    assert explain("--principal", "alice", "--operation", "Read", "--cluster") == 2
    assert "principalType:principalName" in capsys.readouterr().err
