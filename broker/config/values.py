"""Parses and checks the text of a setting. Errors have Apache Kafka's messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final

from moldau.broker.config.setting import Password, Setting, Value, ValueType

DIGITS_MAX: Final = 640
"""The most digits of a whole number, with leading zeros: Python refuses to convert more, if it is configured so."""
_INTEGER_BITS: Final = {ValueType.INT: 32, ValueType.SHORT: 16, ValueType.LONG: 64}
# Patterns are compiled at first use, because most of them are never used.
_DOUBLE: Final = r"[+-]?(NaN|Infinity|([0-9]++(\.[0-9]*+)?|\.[0-9]++)([eE][+-]?[0-9]++)?[fFdD]?)"
"""Matches the text of a double. The quantifiers are possessive, so that the time for a long text is linear."""
_REPLICA: Final = r"[0-9]{1,10}:[0-9]{1,10}"
"""Matches a throttled replica.

DIVERGES: Apache Kafka takes numbers of any length, and brokers then fail to apply the setting.
"""
_VOTER: Final = r"[0-9]+@.+:[0-9]+"
_HOST_PORT: Final = r"(?:[A-Za-z][A-Za-z0-9+.-]*://)?\[?([0-9A-Za-z\-._%:]*)\]?:([0-9]+)"
_DURATION: Final = r"by_duration:P(?=.)([0-9]+D)?(T(?=.)([0-9]+H)?([0-9]+M)?([0-9]+(\.[0-9]+)?S)?)?"


PATTERN_MEMORY_MAX: Final = 1 << 20
"""The most bytes of memory for a compiled regular expression of a user."""


@lru_cache(256)
def linear_matcher(pattern: str) -> Callable[[str], object] | None:
    """Return a function that tells whether the whole of a text matches a pattern of a user, in linear time by RE2.
    Return None if RE2 cannot compile the pattern, or is not installed.
    """
    try:
        import re2
    except ImportError:
        return None

    options = re2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_MEMORY_MAX
    try:
        match: Callable[[str], object] = re2.compile(pattern, options).fullmatch
    except re2.error:
        return None
    return match


class InvalidValue(Exception):
    """Raised if a text is not a valid value of a setting. The message is Apache Kafka's."""


def parse(setting: Setting, text: str | Password) -> Value:
    """Parse the value of a setting, and check it against the allowed values. Raises `InvalidValue`."""
    if isinstance(text, Password):
        assert setting.type is ValueType.PASSWORD, "only passwords are sealed"
        return text
    value = parse_type(setting.name, setting.type, text)
    _check(setting, value)
    return value


def default_value(setting: Setting) -> Value:
    """The default of a setting; None if it has none."""
    return None if setting.default_text is None else parse_type(setting.name, setting.type, setting.default_text)


def parse_type(name: str, kind: ValueType, text: str) -> Value:
    """Parse a text as a value of a type, without a check against the allowed values. `name` is the setting in messages.
    Raises `InvalidValue`.
    """
    trimmed = text.strip()
    if kind in _INTEGER_BITS:
        return _parse_integer(name, kind, text, trimmed)
    if kind is ValueType.BOOLEAN:
        if trimmed.lower() not in ("true", "false"):
            raise _refusal(name, text, "Expected value to be either true or false")
        return trimmed.lower() == "true"
    if kind is ValueType.DOUBLE:
        if not re.fullmatch(_DOUBLE, trimmed):
            raise _refusal(name, text, "Not a number of type DOUBLE")
        return float(trimmed.rstrip("fFdD")) if trimmed[-1:] in "fFdD" else float(trimmed)
    if kind is ValueType.LIST:
        return tuple(dict.fromkeys(each.strip() for each in trimmed.split(","))) if trimmed else ()
    return Password(trimmed) if kind is ValueType.PASSWORD else trimmed


def value_text(value: Value) -> str | None:
    """Format a value like Apache Kafka's DescribeConfigs does; None for None."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float):
        return _java_double(value)
    return str(value)


def allowed_text(setting: Setting) -> str:
    """Describe the allowed values of a setting in words."""
    rule, _, choices = setting.allowed.partition(":")
    kind = setting.type.name.lower()
    if rule in ("one-of", "any-case"):
        return "one of " + choices.replace(",", ", ")
    if rule in ("list", "non-empty-list"):
        of = f" of {choices.replace(',', ', ')}" if choices else ""
        return ("a list" if rule == "list" else "a list with at least one entry") + of
    if ".." in rule:
        low, _, high = rule.partition("..")
        high, _, extra = high.partition("|")
        return f"{kind}, at least {low}" + (f", at most {high}" if high else "") + (f", or {extra}" if extra else "")
    words = {
        "voters": "a list of id@host:port",
        "host-ports": "a list of host:port",
        "replicas": "* or a list of partition:broker",
        "offset-reset": "earliest, latest or by_duration:<ISO 8601 duration>",
        "non-empty": "a text that is not empty",
    }
    return words.get(rule, "true or false" if setting.type is ValueType.BOOLEAN else kind)


def _parse_integer(name: str, kind: ValueType, text: str, trimmed: str) -> int:
    limit = 1 << (_INTEGER_BITS[kind] - 1)
    number = whole_number(trimmed)
    if number is None or not -limit <= number < limit:
        raise _refusal(name, text, f"Not a number of type {kind.name}")
    return number


def whole_number(text: str) -> int | None:
    """Parse a whole number as Java does: a sign and ASCII digits. Returns None for any other text."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= DIGITS_MAX
    return int(text) if is_number else None


def _check(setting: Setting, value: Value) -> None:
    rule, _, choices_text = setting.allowed.partition(":")
    choices = choices_text.split(",") if choices_text else []
    if ".." in rule:
        assert isinstance(value, (int, float))
        _check_range(setting.name, value, rule)
    elif rule == "one-of" and value not in choices:
        raise _refusal(setting.name, value_text(value), "String must be one of: " + ", ".join(choices))
    elif rule == "any-case" and str(value).upper() not in [choice.upper() for choice in choices]:
        raise _refusal(
            setting.name, value_text(value), "String must be one of (case insensitive): " + ", ".join(choices)
        )
    elif rule in ("list", "non-empty-list"):
        assert isinstance(value, tuple)
        _check_list(setting.name, value, choices, may_be_empty=rule == "list")
    elif rule == "non-empty" and value == "":
        raise _refusal(setting.name, "", "String must be non-empty")
    else:
        _check_shape(setting.name, value, rule)


def _check_range(name: str, value: float, rule: str) -> None:
    bounds, _, extra = rule.partition("|")
    low, _, high = bounds.partition("..")
    shown = value_text(value)
    if extra:
        if not (float(low) <= value <= float(high) or value == float(extra)):
            raise _refusal(name, shown, f"Value must be between {low} and {high} or equal to {extra}")
    elif value < float(low):
        raise _refusal(name, shown, f"Value must be at least {low}")
    elif high and value > float(high):
        raise _refusal(name, shown, f"Value must be no more than {high}")


def _check_list(name: str, value: tuple[str, ...], choices: list[str], *, may_be_empty: bool) -> None:
    if not value and not may_be_empty:
        valid = f"[{', '.join(choices)}]" if choices else "any non-empty value"
        raise InvalidValue(f"Configuration '{name}' must not be empty. Valid values include: {valid}")
    for entry in value:
        if not entry:
            raise InvalidValue(f"Configuration '{name}' values must not be empty.")
        if choices and entry not in choices:
            raise _refusal(name, entry, "String must be one of: " + ", ".join(choices))


def _check_shape(name: str, value: Value, rule: str) -> None:
    entries: Iterable[str] = value if isinstance(value, tuple) else ()
    if rule == "voters" and not all(re.fullmatch(_VOTER, entry) for entry in entries):
        raise InvalidValue(
            f"Invalid configuration value for {name}. Each entry should be in the form `{{id}}@{{host}}:{{port}}`."
        )
    if rule == "host-ports":
        for entry in entries:
            if not re.fullmatch(_HOST_PORT, entry):
                raise InvalidValue(
                    f"Failed to parse host name from {entry} for the configuration {name}. "
                    'Each entry should be in the form "{host}:{port}"'
                )
    if rule == "replicas" and not (entries == ("*",) or all(re.fullmatch(_REPLICA, entry) for entry in entries)):
        raise _refusal(
            name,
            f"[{', '.join(entries)}]",
            f"{name} must be the literal '*' or a list of replicas in the following format: "
            "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
        )
    if rule == "offset-reset" and value not in ("earliest", "latest") and not re.fullmatch(_DURATION, str(value)):
        raise _refusal(
            name,
            str(value),
            f"Invalid value `{value}` for configuration {name}. The value must be either 'earliest', 'latest' or of "
            "the format 'by_duration:<PnDTnHnMn.nS>'.",
        )


def _refusal(name: str, shown: str | None, why: str) -> InvalidValue:
    return InvalidValue(f"Invalid value {shown} for configuration {name}: {why}")


def _java_double(value: float) -> str:
    """Format a double like Java's Double.toString: without an exponent from 0.001 to 10,000,000, otherwise with one."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    if value != value or abs(value) == float("inf"):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    shown, _, power = repr(abs(value)).partition("e")
    whole, _, fraction = shown.partition(".")
    digits = (whole + fraction).lstrip("0")
    exponent = int(power or "0") + len(digits) - len(fraction) - 1
    digits = digits.rstrip("0")
    return f"{'-' if value < 0 else ''}{digits[0]}.{digits[1:] or '0'}E{exponent}"
