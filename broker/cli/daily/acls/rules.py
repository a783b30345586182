"""The actions of `moldau acl` that list, add and remove ACLs."""

from __future__ import annotations

import argparse
from typing import Final

from moldau.broker.cli.daily.client import Client
from moldau.broker.cli.daily.failures import WrongArguments, raise_if_error, raise_wrong_arguments
from moldau.broker.cli.daily.session import Session
from moldau.broker.cli.daily.topic_changes import DRY_RUN_NOTE
from moldau.broker.reasons.words import count_with_noun
from moldau.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from moldau.security.access import CLUSTER_NAME, AclOperation, ResourceKind
from moldau.security.acl.bindings import AclBinding, AclFilter, PatternType, PermissionType

SHOWN: Final = ("resource", "name", "pattern", "principal", "permission", "operation", "host")
PRODUCER: Final = (AclOperation.WRITE, AclOperation.CREATE, AclOperation.DESCRIBE)
CONSUMER: Final = (AclOperation.READ, AclOperation.DESCRIBE)


def bindings_of(client: Client, wanted: AclFilter) -> list[AclBinding]:
    """The ACLs that a filter selects, sorted. Raises `Failure`."""
    request = DescribeAclsRequest(
        resource_type_filter=wanted.kind,
        resource_name_filter=wanted.name,
        pattern_type_filter=wanted.pattern_type,
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission,
    )
    reply = client.ask(request, DescribeAclsResponse)
    raise_if_error(reply.error_code, reply.error_message, "the ACLs")
    return sorted(
        AclBinding(
            each.resource_type,
            each.resource_name,
            each.pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for each in reply.resources
        for acl in each.acls
    )


def list_acls(session: Session) -> int:
    """List ACLs (`acl list`)."""
    found = [each for wanted in _filters(session) for each in bindings_of(session.client, wanted)]
    rows = [_row(each) for each in sorted(set(found))]
    session.output.rows(rows, SHOWN, empty="there are no such ACLs")
    return 0


def add_acls(session: Session) -> int:
    """Add ACLs (`acl add`)."""
    from moldau.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse

    bindings = acls_to_add(session.arguments)
    request = CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=each.kind,
                resource_name=each.name,
                resource_pattern_type=each.pattern_type,
                principal=each.principal,
                host=each.host,
                operation=each.operation,
                permission_type=each.permission,
            )
            for each in bindings
        ]
    )
    reply = session.client.ask(request, CreateAclsResponse)
    for binding, result in zip(bindings, reply.results, strict=True):
        raise_if_error(result.error_code, result.error_message, f"the ACL of {binding.principal} on {binding.name}")
    session.output.rows([_row(each) for each in bindings], SHOWN)
    return 0


def acls_to_add(given: argparse.Namespace) -> list[AclBinding]:
    """The ACLs that the arguments of `acl add` describe. Raises `WrongArguments` if a resource or an operation is
    missing, or if `--producer` or `--consumer` allows nothing on a resource that is named.
    """
    named = resources_of(given)
    if not named:
        raise_wrong_arguments(
            "name a resource: --topic, --group, --transactional-id, --cluster, --delegation-token or --user-principal"
        )
    operations = [operation_of(each) for each in given.operation]
    if not operations and not (given.producer or given.consumer):
        raise_wrong_arguments("give --operation, --producer or --consumer")
    pattern = PatternType.PREFIXED if given.prefixed else PatternType.LITERAL
    permission = PermissionType.DENY if given.deny else PermissionType.ALLOW
    found: list[AclBinding] = []
    for kind, name in named:
        these = list(operations)
        if kind is ResourceKind.TOPIC:
            these += (PRODUCER if given.producer else ()) + (CONSUMER if given.consumer else ())
        elif kind is ResourceKind.GROUP and given.consumer:
            these.append(AclOperation.READ)
        elif kind is ResourceKind.TRANSACTIONAL_ID and given.producer:
            these += (AclOperation.WRITE, AclOperation.DESCRIBE)
        if not these:
            role = "producer" if given.producer else "consumer"
            raise_wrong_arguments(
                f"--{role} allows nothing on {kind.name.lower().replace('_', ' ')} {name}: add --operation"
            )
        is_prefixed = given.prefixed and kind is not ResourceKind.CLUSTER
        for principal in given.principal:
            if ":" not in principal:
                raise WrongArguments(f"--principal {principal} is not of the form User:alice")
            found += [
                AclBinding(
                    kind,
                    name,
                    pattern if is_prefixed else PatternType.LITERAL,
                    principal,
                    given.host,
                    operation,
                    permission,
                )
                for operation in dict.fromkeys(these)
            ]
    return found


def remove_acls(session: Session) -> int:
    """Remove ACLs (`acl remove`). Without `--execute` they are only printed."""
    from moldau.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse

    given, client = session.arguments, session.client
    wanted = _filters(session)
    if not (given.principal or given.operation or given.host or resources_of(given)):
        raise_wrong_arguments("say which: --principal, --operation, --host or a resource such as --topic")
    if not given.execute:
        found = sorted({each for one in wanted for each in bindings_of(client, one)})
        session.output.rows([_row(each) for each in found], SHOWN, empty="there are no such ACLs")
        session.note(DRY_RUN_NOTE)
        return 0
    request = DeleteAclsRequest(
        filters=[
            DeleteAclsFilter(
                resource_type_filter=each.kind,
                resource_name_filter=each.name,
                pattern_type_filter=each.pattern_type,
                principal_filter=each.principal,
                host_filter=each.host,
                operation=each.operation,
                permission_type=each.permission,
            )
            for each in wanted
        ]
    )
    gone: list[AclBinding] = []
    for result in client.ask(request, DeleteAclsResponse).filter_results:
        raise_if_error(result.error_code, result.error_message, "the ACLs")
        for acl in result.matching_acls:
            raise_if_error(acl.error_code, acl.error_message, f"the ACL of {acl.principal} on {acl.resource_name}")
            gone.append(
                AclBinding(
                    acl.resource_type,
                    acl.resource_name,
                    acl.pattern_type,
                    acl.principal,
                    acl.host,
                    acl.operation,
                    acl.permission_type,
                )
            )
    session.output.rows([_row(each) for each in sorted(set(gone))], SHOWN)
    session.output.say(f"{count_with_noun(len(set(gone)), 'ACL')} removed")
    return 0


def _filters(session: Session) -> list[AclFilter]:
    """The filters that the arguments describe: one for each resource that is named, or one for all resources."""
    given = session.arguments
    if given.prefixed and given.matching:
        raise_wrong_arguments("give --prefixed or --matching, not both")
    pattern = PatternType.PREFIXED if given.prefixed else PatternType.MATCH if given.matching else PatternType.ANY
    operation = AclOperation.ANY if given.operation is None else operation_of(given.operation)
    named: list[tuple[ResourceKind, str | None]] = [*resources_of(given)]
    return [
        AclFilter(kind, name, pattern, given.principal, given.host, operation, PermissionType.ANY)
        for kind, name in named or [(ResourceKind.ANY, None)]
    ]


def resources_of(given: argparse.Namespace) -> list[tuple[ResourceKind, str]]:
    """The resources that the arguments name."""
    named = {
        ResourceKind.TOPIC: given.topic,
        ResourceKind.GROUP: given.group,
        ResourceKind.TRANSACTIONAL_ID: given.transactional_id,
        ResourceKind.DELEGATION_TOKEN: given.delegation_token,
        ResourceKind.USER: given.user_principal,
        ResourceKind.CLUSTER: [CLUSTER_NAME] if given.cluster else [],
    }
    return [(kind, name) for kind, names in named.items() for name in names]


def operation_of(name: str) -> AclOperation:
    """Parse the name of an ACL operation, in any spelling: Read, DescribeConfigs, ALTER_CONFIGS. Raises
    `WrongArguments`.
    """
    known = {_plain(each.name): each for each in AclOperation if each is not AclOperation.ANY}
    found = known.get(_plain(name))
    if found is None:
        raise WrongArguments(f"there is no operation {name}; they are {', '.join(sorted(known))}")
    return found


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _row(binding: AclBinding) -> dict[str, object]:
    return {
        "resource": _word(ResourceKind, binding.kind),
        "name": binding.name,
        "pattern": _word(PatternType, binding.pattern_type),
        "principal": binding.principal,
        "permission": _word(PermissionType, binding.permission),
        "operation": _word(AclOperation, binding.operation),
        "host": binding.host,
    }


def _word(codes: type[ResourceKind] | type[PatternType] | type[PermissionType] | type[AclOperation], code: int) -> str:
    """The name of a code in Kafka's tools, or the number if the code is not known."""
    return next((each.name for each in codes if each == code), str(code))
