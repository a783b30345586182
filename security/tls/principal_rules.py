"""`ssl.principal.mapping.rules`: maps the name of a certificate's subject to the name of a principal (KIP-371).

    RULE:^CN=(.*?),OU=Sales.*$/$1/L, DEFAULT

The first rule whose pattern matches the whole name decides: every match in it is replaced, then the result is written
in lower (L) or upper case (U). DEFAULT uses the name unchanged. Patterns run in RE2, in linear time: a pattern with
look-around or back references is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol, cast

DEFAULT: Final = "DEFAULT"
PREFIX: Final = "RULE:"
PATTERN_MEMORY_MAX: Final = 1 << 20
"""The maximum memory (bytes) of a compiled pattern."""


class InvalidRule(ValueError):
    """Raised if the rules cannot be parsed. The text names the faulty rule."""


class PatternMatch(Protocol):
    def start(self) -> int: ...
    def end(self) -> int: ...
    def group(self, group: int) -> str | None: ...


class CompiledPattern(Protocol):
    @property
    def groups(self) -> int: ...
    def fullmatch(self, text: str) -> PatternMatch | None: ...
    def search(self, text: str, pos: int = ...) -> PatternMatch | None: ...


class Rule(NamedTuple):
    """A rule. `replacement` is a sequence of texts, and of the numbers of the groups that are inserted between them."""

    pattern: CompiledPattern
    replacement: tuple[str | int, ...]
    case: str
    """The case in which the result is written: "L" for lower, "U" for upper, or empty for unchanged."""

    def apply(self, name: str) -> str | None:
        """Apply the rule to the name of a subject. Returns the name of the principal, or None if the pattern does not
        match the whole name.
        """
        if self.pattern.fullmatch(name) is None:
            return None
        replaced = "".join(self._replaced(name))
        return replaced.lower() if self.case == "L" else replaced.upper() if self.case == "U" else replaced

    def _replaced(self, name: str) -> Iterator[str]:
        position = searched = 0
        while searched <= len(name):
            match = self.pattern.search(name, searched)
            if match is None:
                break
            yield name[position : match.start()]
            for part in self.replacement:
                yield part if isinstance(part, str) else match.group(part) or ""
            position = match.end()
            searched = position + (match.start() == match.end())
        yield name[position:]


class PrincipalRules:
    """The rules of a listener that map subject names to principals."""

    def __init__(self, text: str) -> None:
        """Parse the rules. Raises `InvalidRule`."""
        self._rules = tuple(_parsed(text.strip()))

    def name_of(self, distinguished_name: str) -> str | None:
        """The name of the principal for a subject name; None if no rule matches, so that the client is refused."""
        for rule in self._rules:
            name = distinguished_name if rule is None else rule.apply(distinguished_name)
            if name is not None:
                return name
        return None


def _parsed(text: str) -> Iterator[Rule | None]:
    """Parse the rules, in their order; DEFAULT is None. Raises `InvalidRule`."""
    position = 0
    while position < len(text):
        if text[position].isspace():
            position += 1
            continue
        start = position
        pattern = replacement = None
        if text.startswith(PREFIX, position):
            pattern, position = _section(text, position + len(PREFIX))
            if pattern is not None:
                replacement, position = _section(text, position)
        if pattern is None or replacement is None:
            position = start
        end = text.find(",", position)
        end = len(text) if end < 0 else end
        rest = text[position:end].strip()
        position = end + 1
        if pattern is not None and replacement is not None:
            if rest not in ("", "L", "U"):
                whole, unmatched = text[start:end].strip(), rest[rest[0] in "LU" :]
                raise InvalidRule(f"Invalid rule: `{whole}`, unmatched substring: `{unmatched}`")
            yield _rule(pattern, replacement, rest)
        elif rest == DEFAULT:
            yield None
        elif rest:
            raise InvalidRule(f"Invalid rule: `{rest}`, unmatched substring: `{rest.removeprefix(DEFAULT)}`")


def _section(text: str, start: int) -> tuple[str | None, int]:
    """Read the text from `start` to the next slash that has no backslash before it. Returns the text and the position
    after the slash; None and `start` if there is no such slash.
    """
    position = start
    while position < len(text):
        if text[position] == "/":
            return text[start:position], position + 1
        position += 2 if text[position] == "\\" else 1
    return None, start


def _rule(pattern: str, replacement: str, case: str) -> Rule:
    try:
        import re2  # here, because most nodes have no rules, and the library holds 2.6 MB
    except ImportError:
        raise InvalidRule("Rules need the package google-re2, which is not installed here") from None

    options = re2.Options()
    options.max_mem = PATTERN_MEMORY_MAX
    options.log_errors = False
    try:
        # RE2 does not accept a backslash before a slash.
        compiled = cast("CompiledPattern", re2.compile(pattern.replace("\\/", "/"), options))
    except re2.error as error:
        raise InvalidRule(f"Invalid rule: the pattern `{pattern}` cannot be compiled: {error}") from None
    return Rule(compiled, tuple(_parts(replacement, compiled.groups)), case)


def _parts(replacement: str, groups: int) -> Iterator[str | int]:
    """Parse the replacement of a rule into texts and group numbers.

    A backslash escapes the next character; `$n` is a group if the pattern has that many groups, otherwise text.
    """
    position = 0
    while position < len(replacement):
        char = replacement[position]
        if char == "\\" and position + 1 < len(replacement):
            yield replacement[position + 1]
            position += 2
            continue
        end = position + 1
        if char == "$":
            while end < len(replacement) and _is_group(replacement[position + 1 : end + 1], groups):
                end += 1
        yield int(replacement[position + 1 : end]) if end > position + 1 else char
        position = end


def _is_group(digits: str, groups: int) -> bool:
    return digits.isascii() and digits.isdigit() and int(digits) <= groups
