"""Rules from names of certificates to principals; what Apache Kafka 4.3.1 says of each was read off its class."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.security.tls.principal_rules import InvalidRule, PrincipalRules

SEVERAL = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,"
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U,DEFAULT"
)


@pytest.mark.parametrize(
    ("rules", "name", "principal"),
    [
        ("DEFAULT", "CN=a,O=b", "CN=a,O=b"),
        (SEVERAL, "CN=adMin,OU=ServiceUsers,O=x", "adMin"),
        (SEVERAL, "CN=Eve,OU=Sales,O=x,L=y,ST=z,C=DE", "eve@sales"),
        (SEVERAL, "OU=x,CN=bob", "BOB"),
        (SEVERAL, "O=x", "O=x"),
        ("RULE:^CN=(.*?),O=(.*)$/$1@$2$3/L", "CN=Duke,O=Sun", "duke@sun$3"),
        ("RULE:.*/x/", "CN=a", "xx"),
        ("RULE:CN=(.*?),O=(.*)/$2-$12/U ,DEFAULT", "CN=a,O=b", "B-A2"),
        ("RULE:^nothing$/x/", "CN=a", None),
        (r"RULE:^CN=(a\/b)$/$1\/c/", "CN=a/b", "a/b/c"),
        (r"RULE:^CN=(.*)$/\$1$0/", "CN=a", "$1CN=a"),
        (" DEFAULT , RULE:a/b/ ", "x", "x"),
        ("", "CN=a", None),
        (",,DEFAULT", "CN=a", "CN=a"),
        ("RULE:(a)|(b)/[$1$2]/", "a", "[a]"),
        ("RULE:a*/x/", "aa", "xx"),
        ("RULE:^CN=(.*)$/x$01/", "CN=a", "xa"),
    ],
)
def test_the_first_rule_that_matches_decides(rules: str, name: str, principal: str | None) -> None:
    assert PrincipalRules(rules).name_of(name) == principal


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ("RULE:a/b/Lx", "Invalid rule: `RULE:a/b/Lx`, unmatched substring: `x`"),
        ("DEFAULTx", "Invalid rule: `DEFAULTx`, unmatched substring: `x`"),
        ("RULE:^CN=(.*?),O.*$/$1", "Invalid rule: `RULE:^CN=(.*?)`, unmatched substring: `RULE:^CN=(.*?)`"),
        ("RULE:(?=a)a/b/", "cannot be compiled"),
        ("RULE:(/b/", "cannot be compiled"),
    ],
)
def test_rules_that_cannot_be_read(rules: str, message: str) -> None:
    with pytest.raises(InvalidRule) as raised:
        PrincipalRules(rules)
    assert message in str(raised.value)


def test_a_pattern_that_backtracks_elsewhere_takes_linear_time() -> None:
    began = time.process_time()
    assert PrincipalRules("RULE:^(a+)+$/x/").name_of("a" * 50_000 + "b") is None
    assert time.process_time() - began < 1


@given(st.text("RULE:/,\\$1a(.*)LUDFAT ", max_size=60), st.text("CN=a,/", max_size=20))
def test_any_text_is_refused_or_maps_names(rules: str, name: str) -> None:
    try:
        read = PrincipalRules(rules)
    except InvalidRule:
        return
    read.name_of(name)
