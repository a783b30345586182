"""`moldau acls`: explains which rule decides whether a principal may do an operation, by the ACLs of a running
cluster.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from moldau.broker.cli import client_channels
from moldau.broker.cli.invocation import CommandError, Invocation, read_file

if TYPE_CHECKING:
    from moldau.protocol.messages.describe_acls import DescribeAclsResponse
    from moldau.security.access import ResourceKind
    from moldau.security.acl.authorizer import AclAccess, Authorizer

DESCRIPTION: Final = """\
Ask which rule decides: the ACLs come from a broker, by DescribeAcls, which needs DESCRIBE on the cluster.

The super users and allow.everyone.if.no.acl.found come from the server.properties of a node (--config); without one
there are no super users."""
EPILOG: Final = """\
examples:
  moldau acls explain --bootstrap 127.0.0.1:9092 --principal User:alice --operation Write --topic orders
  moldau acls explain --bootstrap 127.0.0.1:9092 -c server.properties --principal User:alice --operation Read --group g
  moldau acls explain --bootstrap kafka:9092 --command-config c.properties --principal User:x --operation All --cluster

The exit status is 0 where the operation is allowed, 3 where it is denied, 1 where that could not be found out."""
EXIT_DENIED: Final = 3
TIMEOUT_MS: Final = 30_000
PURPOSE: Final = "moldau acls"
ANY: Final = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the subcommand's arguments."""
    parser.add_argument("action", choices=("explain",), help="what to do")
    client_channels.add_arguments(parser, is_required=True)
    parser.add_argument("--principal", required=True, metavar="TYPE:NAME", help="such as User:alice")
    parser.add_argument("--operation", required=True, metavar="NAME", help="such as Read, Write or DescribeConfigs")
    parser.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="of the client (default: %(default)s)")
    resource = parser.add_mutually_exclusive_group(required=True)
    resource.add_argument("--topic", metavar="NAME")
    resource.add_argument("--group", metavar="NAME")
    resource.add_argument("--transactional-id", metavar="NAME")
    resource.add_argument("--delegation-token", metavar="ID")
    resource.add_argument("--user-principal", metavar="TYPE:NAME", help="a user, for operations on its tokens")
    resource.add_argument("--cluster", action="store_true")
    parser.add_argument("-c", "--config", metavar="FILE", help="server.properties of a node: its super users")


def run(arguments: argparse.Namespace, invocation: Invocation) -> int:
    """Explain one decision. Returns the exit status."""
    import asyncio

    from moldau.security.access import AclOperation
    from moldau.security.acl.authorizer import java_address
    from moldau.security.acl.explaining import explain

    names = {each.name.replace("_", "").lower(): each for each in AclOperation if each is not AclOperation.ANY}
    operation = names.get(arguments.operation.replace("_", "").lower())
    if operation is None:
        raise CommandError(f"there is no operation {arguments.operation}", ", ".join(sorted(names)))
    kind, name = resource_of(arguments)
    authorizer = authorizer_of(arguments)
    load_bindings(authorizer, asyncio.run(describe_acls(arguments.bootstrap, arguments.command_config)))
    found = explain(authorizer, arguments.principal, java_address(arguments.host), operation, kind, name)
    word = "allowed" if found.is_allowed else "denied"
    invocation.out.say(f"{word}: {found.reason}", "green" if found.is_allowed else "red")
    return 0 if found.is_allowed else EXIT_DENIED


def resource_of(arguments: argparse.Namespace) -> tuple[ResourceKind, str]:
    """The resource (kind and name) that the arguments give."""
    from moldau.security.access import CLUSTER_NAME, ResourceKind

    named = {
        ResourceKind.TOPIC: arguments.topic,
        ResourceKind.GROUP: arguments.group,
        ResourceKind.TRANSACTIONAL_ID: arguments.transactional_id,
        ResourceKind.DELEGATION_TOKEN: arguments.delegation_token,
        ResourceKind.USER: arguments.user_principal,
    }
    for kind, name in named.items():
        if name is not None:
            return kind, name
    return ResourceKind.CLUSTER, CLUSTER_NAME


def authorizer_of(arguments: argparse.Namespace) -> Authorizer:
    """An authorizer with the settings of the node whose configuration file the arguments give."""
    from moldau.security.acl.authorizer import Authorizer, AuthorizerSettings, parse_super_users
    from moldau.security.principal import parse_principal

    settings = read_file(arguments.config) if arguments.config else {}
    try:
        parse_principal(arguments.principal)
        super_users = parse_super_users(settings.get("super.users", ""))
    except ValueError as error:
        raise CommandError(str(error)) from None
    is_open = settings.get("allow.everyone.if.no.acl.found", "false").strip().lower() == "true"
    return Authorizer(AuthorizerSettings(super_users, is_open), NoAudit())


class NoAudit:
    """An audit log that writes nothing, because explanations are not audited."""

    def decided(self, access: AclAccess, decisions: object) -> None:
        """Write nothing."""


async def describe_acls(bootstrap: str, command_config: str | None) -> DescribeAclsResponse:
    """All ACLs of the cluster. Raises CommandError."""
    import asyncio

    from moldau.protocol.errors import ErrorCode
    from moldau.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

    address = client_channels.address_of(bootstrap)
    channels = client_channels.client_channels(PURPOSE, command_config)
    answered: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    request = DescribeAclsRequest(
        resource_type_filter=ANY,
        resource_name_filter=None,
        pattern_type_filter=ANY,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    try:
        channels.to(PURPOSE, *address).ask(request, answered.set_result, TIMEOUT_MS)
        response = await answered
    finally:
        channels.close()
    if not isinstance(response, DescribeAclsResponse):
        raise CommandError(f"no broker answers on {bootstrap}")
    if response.error_code != ErrorCode.NONE:
        reason = response.error_message or ErrorCode(response.error_code).name
        raise CommandError(f"the broker does not describe its ACLs: {reason}")
    return response


def load_bindings(authorizer: Authorizer, response: DescribeAclsResponse) -> None:
    """Give the authorizer the ACLs of a response."""
    from moldau.security.acl.bindings import AclBinding

    bindings = [
        AclBinding(
            resource.resource_type,
            resource.resource_name,
            resource.pattern_type,
            each.principal,
            each.host,
            each.operation,
            each.permission_type,
        )
        for resource in response.resources
        for each in resource.acls
    ]
    authorizer.changed({number.to_bytes(16, "big"): each for number, each in enumerate(bindings)})
    authorizer.loaded()
