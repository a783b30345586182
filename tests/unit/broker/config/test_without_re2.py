"""A machine without google-re2: what needs a pattern says so in one sentence, and all else works."""

from __future__ import annotations

import sys

import pytest

from moldau.broker.config.values import linear_matcher
from moldau.coordinator.consumer.regular_expressions import matching_topics, regex_fault
from moldau.security.tls.principal_rules import InvalidRule, PrincipalRules


@pytest.fixture(autouse=True)
def without_re2(monkeypatch: pytest.MonkeyPatch) -> None:
    regex_fault.cache_clear()
    linear_matcher.cache_clear()
    monkeypatch.setitem(sys.modules, "re2", None)


def test_a_subscription_by_pattern_is_refused_with_the_name_of_the_package() -> None:
    fault = regex_fault("orders-.*")
    assert fault is not None and fault.endswith("need the package google-re2, which is not installed here.")
    regex_fault.cache_clear()


def test_patterns_of_a_log_match_nothing() -> None:
    assert matching_topics(["orders-.*"], ["orders-1"]) == {"orders-.*": frozenset()}
    assert linear_matcher("a.*") is None
    linear_matcher.cache_clear()


def test_a_rule_for_principals_is_refused_with_the_name_of_the_package() -> None:
    with pytest.raises(InvalidRule, match="google-re2, which is not installed"):
        PrincipalRules("RULE:^CN=(.*)$/$1/")
