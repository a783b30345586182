"""Explains authorization decisions to an operator: the decision of `Authorizer.decide` and the rule that makes it."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from moldau.security.access import AclOperation, ResourceKind
from moldau.security.acl.authorizer import Authorizer
from moldau.security.acl.bindings import WILDCARD, AclBinding, PatternType, PermissionType
from moldau.security.acl.index import acl_bits, decision_of
from moldau.security.acl.networks import is_in_network
from moldau.security.principal import WILDCARD as EVERY_PRINCIPAL


class Explanation(NamedTuple):
    """A decision and its reason. `binding` is the ACL that decided; None if the decision follows from another rule."""

    is_allowed: bool
    reason: str
    binding: AclBinding | None = None


def explain_authorization(
    authorizer: Authorizer, principal: str, host: str, operation: int, kind: int, name: str
) -> Explanation:
    """Explain whether a principal may do an operation on the resource `name` from an address. The search reads every
    ACL, so it is for operators only.

    If several ACLs lead to the decision, the explanation names one: literal before prefixed, and the longest prefix
    first.
    """
    if authorizer.is_super_user(principal):
        return Explanation(True, "the principal is a super user")
    if not authorizer.is_loaded:
        return Explanation(False, "the ACLs have not been loaded yet")
    concerned = [each for each in authorizer.index.bindings.values() if each.kind == kind and each.concerns(name)]
    concerned.sort(key=lambda each: (each.pattern_type, each.name == WILDCARD, -len(each.name), each))
    deciding = [each for each in concerned if _speaks_of(each, principal, host, operation)]
    for binding in deciding:
        if binding.permission != PermissionType.ALLOW:
            return Explanation(False, "a DENY matches: " + acl_text(binding), binding)
    for binding in deciding:
        return Explanation(True, "an ALLOW matches: " + acl_text(binding), binding)
    if concerned or not authorizer.settings.allows_without_acls:
        return Explanation(False, "no ACL matches")
    return Explanation(True, "no ACL concerns the resource, and allow.everyone.if.no.acl.found is true")


def _speaks_of(binding: AclBinding, principal: str, host: str, operation: int) -> bool:
    return (
        binding.principal in (principal, EVERY_PRINCIPAL)
        and (binding.host in (host, WILDCARD) or is_in_network(host, binding.host))
        and decision_of(acl_bits(binding.operation, binding.permission), operation) is not None
    )


def acl_text(binding: AclBinding) -> str:
    """An ACL in one line, in Kafka's words; an unknown code is written as its number."""
    return (
        f"{_word(PermissionType, binding.permission)} {binding.principal} from {binding.host}"
        f" {_word(AclOperation, binding.operation)} on {_word(PatternType, binding.pattern_type)}"
        f" {_word(ResourceKind, binding.kind)} {binding.name}"
    )


def _word(names: type[IntEnum], code: int) -> str:
    try:
        return names(code).name
    except ValueError:
        return str(code)
