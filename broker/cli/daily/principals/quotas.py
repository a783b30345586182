"""What `moldau quota` lists and changes."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Final

from moldau.broker.cli.daily.failures import WrongArguments, check, wrong
from moldau.broker.cli.daily.session import Session
from moldau.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    OpData,
    RequestEntryData,
)
from moldau.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

SHOWN: Final = ("user", "client_id", "ip", "quota", "value")
KINDS: Final = ("user", "client-id", "ip")
EXACT, DEFAULT = 0, 1
"""How a filter of DescribeClientQuotas names an entity."""
DEFAULT_SHOWN: Final = "<default>"
Entity = Sequence[tuple[str, str | None]]
"""Kinds with names, None for the default of the kind."""


def entity_of(given: argparse.Namespace) -> Entity:
    """What the arguments name. Raises `WrongArguments`."""
    entity: list[tuple[str, str | None]] = []
    for kind in KINDS:
        attribute = kind.replace("-", "_")
        name = getattr(given, attribute)
        if name is not None or getattr(given, f"default_{attribute}"):
            entity.append((kind, name))
    if len(entity) > 1 and entity[-1][0] == "ip":
        wrong("an address has quotas alone, without a user or a client id")
    return entity


def list_quotas(session: Session) -> int:
    """`quota list`."""
    components = [
        ComponentData(entity_type=kind, match_type=DEFAULT if name is None else EXACT, match=name)
        for kind, name in entity_of(session.arguments)
    ]
    request = DescribeClientQuotasRequest(components=components, strict=False)
    reply = session.client.ask(request, DescribeClientQuotasResponse)
    check(reply.error_code, reply.error_message, "the quotas")
    rows = [
        {
            **_names((each.entity_type, each.entity_name) for each in entry.entity),
            "quota": value.key,
            "value": value.value,
        }
        for entry in reply.entries or ()
        for value in entry.values
    ]
    rows.sort(key=lambda row: [str(row.get(name) or "") for name in SHOWN])
    shown = [{**row, "value": number_text(row["value"])} for row in rows] if not session.output.is_json else rows
    session.output.rows(shown, SHOWN, empty="there are no quotas: 'moldau quota set' sets one")
    return 0


def _names(entity: Iterable[tuple[str, str | None]]) -> dict[str, object]:
    row: dict[str, object] = dict.fromkeys(("user", "client_id", "ip"))
    for kind, name in entity:
        row[kind.replace("-", "_")] = DEFAULT_SHOWN if name is None else name
    return row


def number_text(value: object) -> str:
    """A rate without a fraction that is zero."""
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def set_quotas(session: Session) -> int:
    """`quota set`."""
    changes = []
    for each in session.arguments.quotas:
        name, is_pair, text = each.partition("=")
        try:
            changes.append(OpData(key=name, value=float(text), remove=False))
        except ValueError:
            is_pair = ""
        if not is_pair:
            raise WrongArguments(f"{each} is not NAME=VALUE with a number, such as producer_byte_rate=1048576")
    return _alter(session, changes)


def unset_quotas(session: Session) -> int:
    """`quota unset`."""
    return _alter(session, [OpData(key=each, value=0.0, remove=True) for each in session.arguments.quotas])


def _alter(session: Session, changes: list[OpData]) -> int:
    given = session.arguments
    entity = entity_of(given)
    if not entity:
        wrong("name one: --user, --client-id or --ip, or one of --default-user, --default-client-id, --default-ip")
    named = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
    request = AlterClientQuotasRequest(
        entries=[RequestEntryData(entity=named, ops=changes)], validate_only=given.dry_run
    )
    what = ", ".join(f"{kind} {DEFAULT_SHOWN if name is None else name}" for kind, name in entity)
    for entry in session.client.ask(request, AlterClientQuotasResponse).entries:
        check(entry.error_code, entry.error_message, f"the quotas of {what}")
    done = [f"{each.key} removed" if each.remove else f"{each.key}={number_text(each.value)}" for each in changes]
    session.output.say(f"{'can be changed' if given.dry_run else 'changed'} for {what}: {', '.join(done)}")
    for each in changes:
        value = None if each.remove else each.value
        session.output.object({**_names(entity), "quota": each.key, "value": value, "changed": not given.dry_run})
    return 0
