"""CreateAcls and DeleteAcls: each creation and each filter has a result of its own."""

from __future__ import annotations

from typing import Final

from moldau.kraft.controller.context import DecisionContext
from moldau.kraft.controller.decision import ApiError, Decision
from moldau.kraft.features import METADATA_VERSION_NAMES, NETWORK_ACLS_VERSION
from moldau.kraft.image.security.acls import record_of
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse
from moldau.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from moldau.protocol.records.metadata import RemoveAccessControlEntryRecord
from moldau.protocol.refusals import refused
from moldau.security.access import CLUSTER_NAME, AclOperation, ResourceKind
from moldau.security.acl.bindings import (
    KNOWN_KINDS,
    KNOWN_OPERATIONS,
    KNOWN_PATTERN_TYPES,
    KNOWN_PERMISSIONS,
    AclBinding,
    AclFilter,
    PatternType,
    PermissionType,
)

RECORDS_MAX: Final = 10_000
"""The most ACLs that one request may create or delete."""
NO_AUTHORIZER: Final = "No Authorizer is configured."
DONE: Final = ApiError(ErrorCode.NONE, "")


def create_acls(context: DecisionContext, request: CreateAclsRequest) -> Decision:
    if not context.settings.security.has_authorizer:
        return Decision((), refused(request, None, ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER))
    if len(request.creations) > RECORDS_MAX:
        message = "Unable to perform excessively large batch operation."
        return Decision((), refused(request, None, ErrorCode.POLICY_VIOLATION, message))
    known = set(context.image.acls.by_id.values())
    records: list[object] = []
    results = []
    for creation in request.creations:
        binding = binding_of(creation)
        refusal = refusal_of(binding) or refusal_of_host(binding.host, context.image.features.metadata_version)
        if refusal is None and binding not in known:
            known.add(binding)
            records.append(record_of(context.settings.new_uuid(), binding))
        outcome = refusal or DONE
        results.append(AclCreationResult(error_code=outcome.error, error_message=outcome.message))
    return Decision(records, CreateAclsResponse(results=results))


def binding_of(creation: AclCreation) -> AclBinding:
    return AclBinding(
        creation.resource_type,
        creation.resource_name,
        creation.resource_pattern_type,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )


def refusal_of(binding: AclBinding) -> ApiError | None:
    """The error of an ACL that cannot be created; None if it can."""
    # DIVERGES: Apache Kafka closes the connection if a code is 0, and answers UNKNOWN_SERVER_ERROR to the code of
    # ANY.
    if binding.kind not in KNOWN_KINDS - {ResourceKind.ANY}:
        return invalid(f"Invalid resourceType {name_of_code(ResourceKind, binding.kind)}")
    if binding.kind == ResourceKind.CLUSTER and binding.name not in ("", CLUSTER_NAME):
        return invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not binding.name:
        return invalid("Invalid empty resource name")
    if binding.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return invalid(f"Invalid patternType {name_of_code(PatternType, binding.pattern_type)}")
    if binding.operation not in KNOWN_OPERATIONS - {AclOperation.ANY}:
        return invalid(f"Invalid operation {name_of_code(AclOperation, binding.operation)}")
    if binding.permission not in (PermissionType.DENY, PermissionType.ALLOW):
        return invalid(f"Invalid permissionType {name_of_code(PermissionType, binding.permission)}")
    if ":" not in binding.principal:
        return invalid(
            f"Could not parse principal from `{binding.principal}` "
            "(no colon is present separating the principal type from the principal name)"
        )
    return None


def refusal_of_host(host: str, metadata_version: int) -> ApiError | None:
    """The error of an ACL with a host that is not allowed; None if it is allowed. A host with a slash is a network,
    which nodes of older metadata versions would take for an address that no client has."""
    knows_networks = metadata_version >= NETWORK_ACLS_VERSION
    if not host and knows_networks:
        return invalid("Host pattern cannot be null or empty")
    if "/" not in host:
        return None
    from moldau.security.acl.networks import InvalidNetwork, network_of  # here, because few clusters have such ACLs

    if not knows_networks:
        name = METADATA_VERSION_NAMES[NETWORK_ACLS_VERSION]
        message = f"CIDR-based ACL host patterns require metadata version {name} or higher."
        return ApiError(ErrorCode.UNSUPPORTED_VERSION, message)
    try:
        network_of(host)
    except InvalidNetwork as refusal:
        return invalid(f"Invalid CIDR notation '{host}': {refusal}")
    return None


def invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)


def name_of_code(codes: type[ResourceKind | PatternType | AclOperation | PermissionType], code: int) -> str:
    return codes(code).name if code in set(codes) else "UNKNOWN"


def delete_acls(context: DecisionContext, request: DeleteAclsRequest) -> Decision:
    if not context.settings.security.has_authorizer:
        return Decision((), refused(request, None, ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER))
    removed: dict[bytes, None] = {}
    results = []
    for each in request.filters:
        wanted = filter_of(each)
        refusal = refusal_of_filter(wanted)
        if refusal is not None:
            results.append(DeleteAclsFilterResult(error_code=refusal.error, error_message=refusal.message))
            continue
        found = {key: binding for key, binding in context.image.acls.by_id.items() if wanted.matches(binding)}
        removed.update(dict.fromkeys(found))
        matching = [matching_acl(binding) for binding in found.values()]
        results.append(DeleteAclsFilterResult(error_message=None, matching_acls=matching))
    if len(removed) > RECORDS_MAX:
        message = f"Cannot remove more than {RECORDS_MAX} acls in a single delete operation."
        return Decision((), refused(request, None, ErrorCode.INVALID_REQUEST, message))
    records = [RemoveAccessControlEntryRecord(id=entry_id) for entry_id in removed]
    return Decision(records, DeleteAclsResponse(filter_results=results))


def filter_of(each: DeleteAclsFilter) -> AclFilter:
    return AclFilter(
        each.resource_type_filter,
        each.resource_name_filter,
        each.pattern_type_filter,
        each.principal_filter,
        each.host_filter,
        each.operation,
        each.permission_type,
    )


def refusal_of_filter(wanted: AclFilter) -> ApiError | None:
    # DIVERGES: Apache Kafka closes the connection on a filter of an unknown type.
    if wanted.kind not in KNOWN_KINDS or wanted.pattern_type not in KNOWN_PATTERN_TYPES:
        return invalid("Unknown patternFilter.")
    if wanted.operation not in KNOWN_OPERATIONS or wanted.permission not in KNOWN_PERMISSIONS:
        return invalid("Unknown entryFilter.")
    return None


def matching_acl(binding: AclBinding) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=binding.kind,
        resource_name=binding.name,
        pattern_type=binding.pattern_type,
        principal=binding.principal,
        host=binding.host,
        operation=binding.operation,
        permission_type=binding.permission,
    )
