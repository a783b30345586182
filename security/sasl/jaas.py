"""Parses the login context of `sasl.jaas.config`: the name of a login module, a flag and options, as Java writes them.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password='b c' user_a=b ;

Only Kafka's own login modules are accepted, and no class is ever loaded: a name selects a mechanism of this node. Every
other name is refused (against attacks as in CVE-2023-25194).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

SIZE_MAX: Final = 1 << 20
"""The maximum length (characters) of a login context."""
MODULES: Final[Mapping[str, tuple[str, ...]]] = {
    "org.apache.kafka.common.security.plain.PlainLoginModule": ("PLAIN",),
    "org.apache.kafka.common.security.scram.ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule": ("OAUTHBEARER",),
}
"""The mechanisms that each login module serves."""
FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})
_QUOTES: Final = "\"'"
_DELIMITERS: Final = "=;"
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


class JaasError(ValueError):
    """Raised if a text is not a login context. The message never has the value of an option."""


class LoginModule:
    """A login module with its options, as a login context names it.

    Its `repr` shows only the names of the options, because values may be secret.
    """

    __slots__ = ("name", "options")

    def __init__(self, name: str, options: Mapping[str, str]) -> None:
        self.name = name
        self.options = options

    @property
    def mechanisms(self) -> tuple[str, ...]:
        return MODULES[self.name]

    def option(self, name: str) -> str:
        """The value of an option. Raises `JaasError` if it is missing."""
        value = self.options.get(name)
        if value is None:
            raise JaasError(f"The login module {self.name} needs the option {name}.")
        return value

    def __repr__(self) -> str:
        return f"{self.name} with {', '.join(sorted(self.options)) or 'no options'}"


def parse_jaas(text: str, mechanism: str) -> LoginModule:
    """Parse a login context. Raises `JaasError` unless it has exactly one login module, and the module serves the
    mechanism."""
    if len(text) > SIZE_MAX:
        raise JaasError(f"A login context has at most {SIZE_MAX} characters.")
    tokens = _tokens(text)
    name, _ = next(tokens, ("", False))
    if name not in MODULES:
        raise JaasError(f"{name} is not a login module that this node knows: it knows {', '.join(MODULES)}.")
    flag, _ = next(tokens, ("", False))
    if flag.lower() not in FLAGS:
        raise JaasError(f"The login module {name} is followed by one of {', '.join(sorted(FLAGS))}.")
    module = LoginModule(name, _options(name, tokens))
    if next(tokens, None) is not None:
        raise JaasError("A login context of a listener holds one login module.")
    if mechanism not in module.mechanisms:
        raise JaasError(f"{name} serves {' and '.join(module.mechanisms)}, not {mechanism}.")
    return module


def _options(module: str, tokens: Iterator[tuple[str, bool]]) -> dict[str, str]:
    options: dict[str, str] = {}
    for key, is_quoted in tokens:
        if key == ";" and not is_quoted:
            return options
        if next(tokens, None) != ("=", False):
            raise JaasError(f"An option of {module} is followed by = and its value.")
        value = next(tokens, None)
        if value is None or (not value[1] and value[0] in _DELIMITERS):
            raise JaasError(f"The option {key} of {module} has no value.")
        if key in options:
            raise JaasError(f"The option {key} of {module} is given twice.")
        options[key] = value[0]
    raise JaasError(f"The login context of {module} ends with a semicolon.")


def _tokens(text: str) -> Iterator[tuple[str, bool]]:
    """Split a login context into words, delimiters and quoted texts, without comments. Yields each with whether it was
    quoted.

    Raises `JaasError` if a quote is not closed.
    """
    position, end = 0, len(text)
    while position < end:
        char = text[position]
        if char.isspace():
            position += 1
        elif text.startswith(("//", "/*"), position):
            closing = "\n" if text[position + 1] == "/" else "*/"
            found = text.find(closing, position + 2)
            position = end if found < 0 else found + len(closing)
        elif char in _QUOTES:
            value, position = _quoted(text, position)
            yield value, True
        elif char in _DELIMITERS:
            yield char, False
            position += 1
        else:
            start = position
            while position < end and not text[position].isspace() and text[position] not in _DELIMITERS + _QUOTES:
                position += 1
            yield text[start:position], False


def _quoted(text: str, start: int) -> tuple[str, int]:
    """Read the quoted text that begins at `start`. Returns its value and the position after the closing quote. Raises
    `JaasError` if the quote is not closed.

    A backslash escapes the next character, or makes one of Java's control characters.
    """
    quote, position, parts = text[start], start + 1, []
    while position < len(text) and text[position] != quote:
        if text[position] == "\\" and position + 1 < len(text):
            position += 1
            parts.append(_ESCAPES.get(text[position], text[position]))
        else:
            parts.append(text[position])
        position += 1
    if position >= len(text):
        raise JaasError("A quote in a login context is not closed.")
    return "".join(parts), position + 1
