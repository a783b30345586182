"""The action `moldau acl explain`: names the ACL of a running cluster that decides a request."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Final

from moldau.broker.cli.daily.acls.rules import bindings_of, operation_of, resources_of
from moldau.broker.cli.daily.failures import WrongArguments, raise_wrong_arguments
from moldau.broker.cli.daily.session import Session
from moldau.broker.cli.invocation import read_file
from moldau.security.acl.authorizer import AclAccess, Authorizer, AuthorizerSettings, java_address, parse_super_users
from moldau.security.acl.bindings import AclBinding, AclFilter
from moldau.security.acl.explaining import explain_authorization
from moldau.security.principal import parse_principal

EXIT_DENIED: Final = 3


def explain_decision(session: Session) -> int:
    """Print whether the ACLs allow an operation, and which ACL decides that (`acl explain`)."""
    given = session.arguments
    operation = operation_of(given.operation)
    named = resources_of(given)
    if len(named) != 1:
        raise_wrong_arguments(
            "name one resource: --topic, --group, --transactional-id, --cluster, --delegation-token, --user-principal"
        )
    ((kind, name),) = named
    authorizer = authorizer_of(given)
    load_bindings(authorizer, bindings_of(session.client, AclFilter()))
    found = explain_authorization(authorizer, given.principal, java_address(given.host), operation, kind, name)
    word = "allowed" if found.is_allowed else "denied"
    session.output.say(f"{word}: {found.reason}", "green" if found.is_allowed else "red")
    session.output.object({"is_allowed": found.is_allowed, "reason": found.reason})
    return 0 if found.is_allowed else EXIT_DENIED


def authorizer_of(arguments: argparse.Namespace) -> Authorizer:
    """Make an authorizer with the settings in the server.properties that the arguments name, or with the defaults."""
    settings = read_file(arguments.config) if arguments.config else {}
    try:
        parse_principal(arguments.principal)
        super_users = parse_super_users(settings.get("super.users", ""))
    except ValueError as error:
        raise WrongArguments(str(error)) from None
    is_open = settings.get("allow.everyone.if.no.acl.found", "false").strip().lower() == "true"
    return Authorizer(AuthorizerSettings(super_users, is_open), NoAudit())


class NoAudit:
    """An audit log that writes nothing, because explanations are not audited."""

    def log_decisions(self, access: AclAccess, decisions: object) -> None:
        """Write nothing."""


def load_bindings(authorizer: Authorizer, bindings: Iterable[AclBinding]) -> None:
    """Load ACLs into an authorizer that has none."""
    authorizer.apply_changes({number.to_bytes(16, "big"): each for number, each in enumerate(bindings)})
    authorizer.on_metadata_loaded()
