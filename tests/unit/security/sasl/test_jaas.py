"""Login contexts as Java writes them."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.security.sasl.jaas import JaasError, parse_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def test_words_quotes_comments_and_lines() -> None:
    text = f"""// the brokers
    {SCRAM} REQUIRED
        username="a \\"b\\" \\\\ c" /* not ; yet */ password='x"y'
        tokenauth=true;"""
    module = parse_jaas(text, "SCRAM-SHA-512")
    assert module.options == {"username": 'a "b" \\ c', "password": 'x"y', "tokenauth": "true"}
    assert module.option("tokenauth") == "true"
    with pytest.raises(JaasError, match="needs the option other"):
        module.option("other")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "is not a login module"),
        ("com.sun.security.auth.module.JndiLoginModule required x=y;", "com.sun.security.auth.module.JndiLoginModule"),
        (f"{PLAIN} always x=y;", "is followed by one of"),
        (f"{PLAIN} required x=y", "ends with a semicolon"),
        (f"{PLAIN} required x;", "followed by ="),
        (f"{PLAIN} required x=;", "has no value"),
        (f'{PLAIN} required x="1;', "not closed"),
        (f"{PLAIN} required x=secret x=secret;", "given twice"),
        (f"{PLAIN} required; {PLAIN} required;", "one login module"),
        (f"{SCRAM} required;", "not PLAIN"),
    ],
)
def test_refusals_name_what_is_wrong_and_no_value(text: str, error: str) -> None:
    with pytest.raises(JaasError, match=error) as raised:
        parse_jaas(text, "PLAIN")
    assert "secret" not in str(raised.value)


@given(st.text(max_size=80))
def test_any_text_is_refused_or_read(tail: str) -> None:
    with suppress(JaasError):
        assert parse_jaas(f"{PLAIN} required {tail}", "PLAIN").name == PLAIN


@given(st.text(max_size=30))
def test_a_quoted_value_is_read_as_it_is(value: str) -> None:
    quoted = value.replace("\\", "\\\\").replace('"', '\\"')
    assert parse_jaas(f'{PLAIN} required a="{quoted}" ;', "PLAIN").options == {"a": value}
