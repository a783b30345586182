"""AlterClientQuotas: for each entity all requested changes are made, or none (KIP-546)."""

from __future__ import annotations

from collections import Counter

from moldau.kraft.controller.context import DecisionContext
from moldau.kraft.controller.decision import ApiError, Decision
from moldau.kraft.image.security.client_quotas import record_of
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    RequestEntryData,
    ResponseEntryData,
)
from moldau.security.quotas.entity import IP, QuotaEntity, refusal_of_entity, refusal_of_value


def alter_client_quotas(context: DecisionContext, request: AlterClientQuotasRequest) -> Decision:
    entities = [entity_of(entry) for entry in request.entries]
    counts = Counter(entities)
    records: list[object] = []
    responses: dict[QuotaEntity, ResponseEntryData] = {}
    for entity, entry in zip(entities, request.entries, strict=True):
        reason = refusal_of(entity, entry)
        if counts[entity] > 1:
            # DIVERGES: Apache Kafka makes the changes of the first entry that names an entity, and reports the error.
            reason = f"Ignoring duplicate entity {entity}"
        if reason is None:
            records.extend(quota_changes(context, entity, entry))
        error = ErrorCode.NONE if reason is None else ErrorCode.INVALID_REQUEST
        responses[entity] = entity_response(entity, ApiError(error, reason))
    reply = AlterClientQuotasResponse(entries=list(responses.values()))
    return Decision(() if request.validate_only else records, reply)


def entity_of(entry: RequestEntryData) -> QuotaEntity:
    return QuotaEntity.from_parts((part.entity_type, part.entity_name) for part in entry.entity)


def refusal_of(entity: QuotaEntity, entry: RequestEntryData) -> str | None:
    refusal = refusal_of_entity(entity) or refusal_of_address(entity)
    if refusal is not None:
        return refusal
    keys = Counter(change.key for change in entry.ops)
    if any(count > 1 for count in keys.values()):
        return f"Ignoring duplicate entity {entity}"
    refusals = (refusal_of_value(entity, each.key, each.value) for each in entry.ops if not each.remove)
    return next((each for each in refusals if each is not None), None)


def refusal_of_address(entity: QuotaEntity) -> str | None:
    # DIVERGES: Apache Kafka accepts a host name too, and resolves it whenever it compares addresses.
    kind, name = entity.parts[0]
    if kind != IP or name is None:
        return None
    try:
        from ipaddress import ip_address

        ip_address(name)
    except ValueError:
        return f"{name} is not a valid IP or resolvable host."
    return None


def quota_changes(context: DecisionContext, entity: QuotaEntity, entry: RequestEntryData) -> list[object]:
    """The records that change the quotas of an entry; quotas that have the value already are left out."""
    existing = context.image.quotas.by_entity.get(entity) or {}
    wanted = {change.key: None if change.remove else change.value for change in entry.ops}
    return [record_of(entity, key, value) for key, value in wanted.items() if existing.get(key) != value]


def entity_response(entity: QuotaEntity, outcome: ApiError) -> ResponseEntryData:
    return ResponseEntryData(
        error_code=outcome.error,
        error_message=outcome.message,
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.parts],
    )
