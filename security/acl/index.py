"""The index of all ACLs by kind of resource, principal and host. A decision reads only the ACLs that may apply.

kind ──▶ (principal or User:*, host, network or *) ──▶ Permissions, by name ──▶ what is allowed and denied, as bits

Bit n says that the operation with the code n is allowed, bit n + `DENIED_FROM` that it is denied. An ALLOW of READ,
WRITE, DELETE or ALTER also allows DESCRIBE, and an ALLOW of ALTER_CONFIGS allows DESCRIBE_CONFIGS. A DENY implies
nothing.

A literal name is looked up in a dictionary. Prefixes are kept sorted. Let P be the last prefix that does not sort after
a name. Then every prefix of the name is also a prefix of P. Each prefix refers to the longest other prefix with which
it begins, and its bits include the bits of that prefix. A bisection finds P, and following the references finds the
longest prefix of the name.

Networks (CIDR notation) are compared with the address one by one. Without ACLs for networks this costs nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum, auto
from typing import Final, NamedTuple

from moldau.security.access import AclOperation
from moldau.security.acl.bindings import WILDCARD, AclBinding, PatternType, PermissionType
from moldau.security.acl.networks import SEPARATOR, InvalidNetwork, Network, address_of, network_of
from moldau.security.principal import WILDCARD as EVERY_PRINCIPAL

DENIED_FROM: Final = 32
"""The position of the first bit for denied operations. The codes of all operations are smaller."""
EVERY_OPERATION: Final = (1 << DENIED_FROM) - 1
"""The bits of all allowed operations, including operations that this version does not know."""
IMPLIED: Final[dict[int, int]] = {
    AclOperation.READ: AclOperation.DESCRIBE,
    AclOperation.WRITE: AclOperation.DESCRIBE,
    AclOperation.DELETE: AclOperation.DESCRIBE,
    AclOperation.ALTER: AclOperation.DESCRIBE,
    AclOperation.ALTER_CONFIGS: AclOperation.DESCRIBE_CONFIGS,
}
"""The operation that is also allowed by an ALLOW of the operation in the key."""


def acl_bits(operation: int, permission: int) -> int:
    """Return the bits that an ACL of an operation and a permission sets, or 0 if the code of the operation has no bit.
    A permission that this version does not know counts as DENY.
    """
    if operation == AclOperation.ALL:
        bits = EVERY_OPERATION
    elif 0 <= operation < DENIED_FROM:
        bits = 1 << operation
    else:
        return 0
    if permission != PermissionType.ALLOW:
        return bits << DENIED_FROM
    return bits | 1 << IMPLIED[operation] if operation in IMPLIED else bits


def decision_of(bits: int, operation: int) -> bool | None:
    """Whether permission bits allow an operation: False if they deny it, None if they neither allow nor deny it."""
    if bits >> (DENIED_FROM + operation) & 1:
        return False
    return True if bits >> operation & 1 else None


EVERY_NAME: Final = ""
"""The empty prefix, which every name begins with. ACLs with the literal name `*` are stored under it."""


class Prefix(NamedTuple):
    """One of the sorted prefixes, with a reference to the longest other prefix that it begins with."""

    text: str
    bits: int
    """The permission bits of this prefix and of all shorter prefixes of it."""
    shorter: Prefix | None


class PatternAcls:
    """The ACLs of one pattern, and their permission bits together. The operation and the permission of each ACL are
    kept, because the bits are computed again when one is removed."""

    __slots__ = ("bits", "entries")

    def __init__(self) -> None:
        self.bits = 0
        self.entries: list[tuple[int, int]] = []
        """The (operation, permission) of each ACL."""

    def compute(self) -> None:
        self.bits = 0
        for operation, permission in self.entries:
            self.bits |= acl_bits(operation, permission)


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
        """The permission bits of all patterns together; None if they must be computed again because an ACL was
        removed.
        """
        self._sorted: list[str] = []
        self._steps: list[Prefix] | None = []
        """For each prefix in `_sorted`, its bits and the longest shorter prefix; None if they must be computed
        again.
        """

    def bits_of(self, name: str) -> int:
        """The permission bits of all ACLs whose patterns match a resource of this name."""
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
        """The permission bits of the ACLs that match every resource."""
        pattern = self.prefixed.get(EVERY_NAME)
        return 0 if pattern is None else pattern.bits

    @property
    def of_any_name(self) -> int:
        """The permission bits of all ACLs together, even if their patterns match different resources."""
        bits = self._of_any_name
        if bits is None:
            bits = 0
            for patterns in (self.literal, self.prefixed):
                for pattern in patterns.values():
                    bits |= pattern.bits
            self._of_any_name = bits
        return bits

    def concerns(self, name: str) -> bool:
        """Whether one of the ACLs has a pattern that matches a resource of this name."""
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


class DecisionByResourceType(Enum):
    """The decision of the ACLs on an operation, for all resources of a kind at once."""

    DENIED = auto()
    """A DENY that matches every resource applies."""
    ALLOWED = auto()
    """An ALLOW that matches every resource applies, and no DENY applies to any resource."""
    NONE = auto()
    """No ACL allows or denies the principal this operation on any resource."""
    SOME = auto()
    """The decision depends on the name of the resource."""


class CountedNetwork:
    """A network, and the number of ACLs that have it as their host."""

    __slots__ = ("acls_count", "network")

    def __init__(self, network: Network) -> None:
        self.network = network
        self.acls_count = 0


KindIndex = dict[tuple[str, str], Permissions]
"""The ACLs on one kind of resource, by principal and host."""
_NO_ACLS: Final[Mapping[tuple[str, str], Permissions]] = {}


class AclIndex:
    """All ACLs, by the id of their record in the metadata, and an index for decisions."""

    __slots__ = ("_bindings", "_kinds", "_networks")

    def __init__(self) -> None:
        self._bindings: dict[bytes, AclBinding] = {}
        self._kinds: dict[int, KindIndex] = {}
        self._networks: dict[str, CountedNetwork] = {}
        """The networks that are hosts of ACLs, by their text."""

    @property
    def bindings(self) -> Mapping[bytes, AclBinding]:
        return self._bindings

    def decide(self, principal: str, host: str, operation: int, kind: int, name: str) -> bool | None:
        """Whether the ACLs allow the operation on the resource `name`: False if one denies it, None if no ACL
        applies.
        """
        find = self._kinds.get(kind, _NO_ACLS).get
        bits = 0
        for key in self._keys(principal, host):
            permissions = find(key)
            if permissions is not None:
                bits |= permissions.bits_of(name)
        return decision_of(bits, operation)

    def decide_for_all(self, principal: str, host: str, operation: int, kind: int) -> DecisionByResourceType:
        """The decision of the ACLs on an operation for all resources of the kind at once."""
        find = self._kinds.get(kind, _NO_ACLS).get
        of_all = of_some = 0
        for key in self._keys(principal, host):
            permissions = find(key)
            if permissions is not None:
                of_all |= permissions.of_every_name
                of_some |= permissions.of_any_name
        if decision_of(of_all, operation) is False:
            return DecisionByResourceType.DENIED
        decision = decision_of(of_some, operation)
        if decision is None:
            return DecisionByResourceType.NONE
        return (
            DecisionByResourceType.ALLOWED
            if decision and decision_of(of_all, operation)
            else DecisionByResourceType.SOME
        )

    def has_kind(self, kind: int) -> bool:
        """Whether there is an ACL of any principal on resources of the kind."""
        return bool(self._kinds.get(kind))

    def concerns(self, kind: int, name: str) -> bool:
        """Whether an ACL of any principal applies to the resource. The search examines every principal that has
        ACLs."""
        return any(permissions.concerns(name) for permissions in self._kinds.get(kind, _NO_ACLS).values())

    def bindings_about(self, kind: int, principal: str, host: str) -> Iterator[AclBinding]:
        """The ACLs on resources of a kind that apply to the principal at the address."""
        of_kind = self._kinds.get(kind, _NO_ACLS)
        for key in set(self._keys(principal, host)):
            if key in of_kind:
                yield from of_kind[key].bindings.values()

    def put(self, entry_id: bytes, binding: AclBinding) -> None:
        """Add an ACL, or replace the one with the same record id. A binding with an unknown pattern type applies to no
        resource.
        """
        self.remove(entry_id)
        self._bindings[entry_id] = binding
        if binding.pattern_type in (PatternType.LITERAL, PatternType.PREFIXED):
            of_kind = self._kinds.setdefault(binding.kind, {})
            of_kind.setdefault((binding.principal, binding.host), Permissions()).put(entry_id, binding)
            if SEPARATOR in binding.host:
                self._put_network(binding.host)

    def remove(self, entry_id: bytes) -> None:
        """Remove the ACL with this record id if it exists."""
        binding = self._bindings.pop(entry_id, None)
        if binding is None or binding.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
            return
        of_kind = self._kinds[binding.kind]
        permissions = of_kind[binding.principal, binding.host]
        permissions.remove(entry_id)
        if not permissions.bindings:
            del of_kind[binding.principal, binding.host]
        known = self._networks.get(binding.host)
        if known is not None:
            known.acls_count -= 1
            if known.acls_count == 0:
                del self._networks[binding.host]

    def _put_network(self, text: str) -> None:
        known = self._networks.get(text)
        if known is None:
            try:
                known = self._networks[text] = CountedNetwork(network_of(text))
            except InvalidNetwork:
                return  # Older metadata versions allow any text as a host; this one matches no address.
        known.acls_count += 1

    def _keys(self, principal: str, host: str) -> Sequence[tuple[str, str]]:
        """The keys (principal, host) of all ACLs that can apply to a principal at an address: its own and `User:*`,
        with its address, its networks and `*`.
        """
        keys = (principal, WILDCARD), (EVERY_PRINCIPAL, WILDCARD), (principal, host), (EVERY_PRINCIPAL, host)
        if not self._networks:
            return keys
        address = address_of(host)
        within = [text for text, known in self._networks.items() if address is not None and address in known.network]
        return [*keys, *((each, text) for text in within for each in (principal, EVERY_PRINCIPAL))]
