"""The permissions of one principal and one host by resource name, as bits (`moldau.security.acl.implications`).

A literal name is looked up in a dictionary. Prefixes are kept sorted. Let P be the last prefix that does not sort after
a name: every prefix of the name is then also a prefix of P. Each prefix therefore refers to the longest other prefix
that it begins with, and its bits include those of all shorter ones. One bisection and a few comparisons give the bits
for a name.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, NamedTuple

from moldau.security.acl.bindings import WILDCARD, AclBinding, PatternType
from moldau.security.acl.implications import bits_of

EVERY_NAME: Final = ""
"""The empty prefix, which stands for the literal name `*`."""


class Prefix(NamedTuple):
    """One of the sorted prefixes, with the longest other prefix that it begins with."""

    text: str
    bits: int
    """The bits of this prefix and of all shorter prefixes of it."""
    shorter: Prefix | None


class PatternAcls:
    """The ACLs of one pattern. They are counted one by one, so that removing one leaves the bits of the others."""

    __slots__ = ("bits", "entries")

    def __init__(self) -> None:
        self.bits = 0
        self.entries: list[tuple[int, int]] = []
        """The (operation, permission) of each ACL."""

    def compute(self) -> None:
        self.bits = 0
        for operation, permission in self.entries:
            self.bits |= bits_of(operation, permission)


class Permissions:
    """The ACLs of one principal and one host on resources of one kind.

    After a change the prefixes are sorted at the next decision, so that many changes cost one sort.
    """

    __slots__ = ("_of_any_name", "_sorted", "_steps", "bindings", "literal", "prefixed")

    def __init__(self) -> None:
        self.bindings: dict[bytes, AclBinding] = {}
        self.literal: dict[str, PatternAcls] = {}
        self.prefixed: dict[str, PatternAcls] = {}
        self._of_any_name: int | None = 0
        """The bits of all patterns; None after an ACL was removed."""
        self._sorted: list[str] = []
        self._steps: list[Prefix] | None = []
        """The links to shorter prefixes, by position in `_sorted`; None after a change."""

    def of(self, name: str) -> int:
        """The bits that the ACLs allow and deny on one resource."""
        pattern = self.literal.get(name)
        bits = 0 if pattern is None else pattern.bits
        steps = self._steps
        if steps is None:
            steps = self._rebuilt()
        # The body of `_longest_prefix`, repeated here because every decision runs it.
        position = bisect_right(self._sorted, name)
        prefix = steps[position - 1] if position else None
        while prefix is not None:
            if name.startswith(prefix.text):
                return bits | prefix.bits
            prefix = prefix.shorter
        return bits

    @property
    def of_every_name(self) -> int:
        """The bits that the ACLs allow and deny on all resources."""
        pattern = self.prefixed.get(EVERY_NAME)
        return 0 if pattern is None else pattern.bits

    @property
    def of_any_name(self) -> int:
        """The bits that the ACLs allow and deny on some resource or other."""
        bits = self._of_any_name
        if bits is None:
            bits = 0
            for patterns in (self.literal, self.prefixed):
                for pattern in patterns.values():
                    bits |= pattern.bits
            self._of_any_name = bits
        return bits

    def concerns(self, name: str) -> bool:
        """Whether the pattern of one of the ACLs matches the resource."""
        return name in self.literal or self._longest_prefix(name) is not None

    def put(self, entry_id: bytes, binding: AclBinding) -> None:
        self.bindings[entry_id] = binding
        patterns, name = self._place_of(binding)
        if name not in patterns:
            patterns[name] = PatternAcls()
        patterns[name].entries.append((binding.operation, binding.permission))
        self._changed(patterns, name)
        if self._of_any_name is not None:
            self._of_any_name |= patterns[name].bits

    def remove(self, entry_id: bytes) -> None:
        binding = self.bindings.pop(entry_id)
        patterns, name = self._place_of(binding)
        patterns[name].entries.remove((binding.operation, binding.permission))
        self._changed(patterns, name)
        self._of_any_name = None

    def _place_of(self, binding: AclBinding) -> tuple[dict[str, PatternAcls], str]:
        if binding.pattern_type == PatternType.PREFIXED:
            return self.prefixed, binding.name
        if binding.name == WILDCARD:
            return self.prefixed, EVERY_NAME
        return self.literal, binding.name

    def _changed(self, patterns: dict[str, PatternAcls], name: str) -> None:
        pattern = patterns[name]
        pattern.compute()
        if not pattern.entries:
            del patterns[name]
        if patterns is self.prefixed:
            self._steps = None

    def _longest_prefix(self, name: str) -> Prefix | None:
        steps = self._steps
        if steps is None:
            steps = self._rebuilt()
        position = bisect_right(self._sorted, name)
        prefix = steps[position - 1] if position else None
        while prefix is not None and not name.startswith(prefix.text):
            prefix = prefix.shorter
        return prefix

    def _rebuilt(self) -> list[Prefix]:
        self._sorted = sorted(self.prefixed)
        self._steps = steps = []
        last: Prefix | None = None
        for text in self._sorted:
            while last is not None and not text.startswith(last.text):
                last = last.shorter
            bits = self.prefixed[text].bits
            last = Prefix(text, bits if last is None else bits | last.bits, last)
            steps.append(last)
        return steps
