"""The actions of `moldau quota`."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Final

from moldau.broker.cli.daily.client import Client
from moldau.broker.cli.daily.failures import (
    EXIT_UNKNOWN,
    Failure,
    WrongArguments,
    raise_if_error,
    raise_wrong_arguments,
)
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
    EntryData,
)

SHOWN: Final = ("user", "client_id", "ip", "quota", "value")
KINDS: Final = ("user", "client-id", "ip")
EXACT, DEFAULT = 0, 1
"""The match types in a filter of DescribeClientQuotas: an exact name, or the default of the entity type."""
DEFAULT_SHOWN: Final = "<default>"
UNKNOWN_QUOTA: Final = "Invalid configuration key "
"""The beginning of the message of a broker that does not know a quota. The name follows."""
Entity = Sequence[tuple[str, str | None]]
"""The parts of a quota's entity: pairs of an entity type and a name. The name None stands for the default of the
type.
"""


def entity_of(given: argparse.Namespace) -> Entity:
    """The quota entity that the arguments name. Raises `WrongArguments`."""
    entity: list[tuple[str, str | None]] = []
    for kind in KINDS:
        attribute = kind.replace("-", "_")
        name = getattr(given, attribute)
        if name is not None or getattr(given, f"default_{attribute}"):
            entity.append((kind, name))
    if len(entity) > 1 and entity[-1][0] == "ip":
        raise_wrong_arguments("an address has quotas alone, without a user or a client id")
    return entity


def list_quotas(session: Session) -> int:
    """List quotas (`quota list`)."""
    entity = entity_of(session.arguments)
    rows = [
        {
            **_names((each.entity_type, each.entity_name) for each in entry.entity),
            "quota": value.key,
            "value": value.value,
        }
        for entry in _quotas_of(session.client, entity, is_exact=False)
        for value in entry.values
    ]
    rows.sort(key=lambda row: [str(row.get(name) or "") for name in SHOWN])
    shown = [{**row, "value": number_text(row["value"])} for row in rows] if not session.output.is_json else rows
    whose = f" of {_text_of(entity)}" if entity else ""
    session.output.rows(shown, SHOWN, empty=f"there are no quotas{whose}: 'moldau quota set' sets one")
    return 0


def _quotas_of(client: Client, entity: Entity, *, is_exact: bool) -> Sequence[EntryData]:
    """Describe the quotas of an entity. Unless `is_exact`, those of entities with further parts are included, such as a
    user's client ids. Raises `Failure`.
    """
    components = [
        ComponentData(entity_type=kind, match_type=DEFAULT if name is None else EXACT, match=name)
        for kind, name in entity
    ]
    request = DescribeClientQuotasRequest(components=components, strict=is_exact)
    reply = client.ask(request, DescribeClientQuotasResponse)
    raise_if_error(reply.error_code, reply.error_message, "the quotas")
    return reply.entries or ()


def _text_of(entity: Entity) -> str:
    return ", ".join(f"{kind} {DEFAULT_SHOWN if name is None else name}" for kind, name in entity)


def _names(entity: Iterable[tuple[str, str | None]]) -> dict[str, object]:
    row: dict[str, object] = dict.fromkeys(("user", "client_id", "ip"))
    for kind, name in entity:
        row[kind.replace("-", "_")] = DEFAULT_SHOWN if name is None else name
    return row


def number_text(value: object) -> str:
    """Format a rate as text, a whole number without its fraction: 1024 for 1024.0."""
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def set_quotas(session: Session) -> int:
    """Set quotas (`quota set`)."""
    changes = []
    for each in session.arguments.quotas:
        name, _, text = each.partition("=")
        value = _number(text)
        if value is None or not name:
            raise WrongArguments(f"{each} is not NAME=VALUE with a number, such as producer_byte_rate=1048576")
        changes.append(OpData(key=name, value=value, remove=False))
    return _alter(session, _named_entity(session.arguments), changes)


def _number(text: str) -> float | None:
    """Parse a finite number; None if the text is not one."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if isfinite(value) else None


def unset_quotas(session: Session) -> int:
    """Remove quotas (`quota unset`). A quota that is not set is a failure, as in Apache Kafka's tool, because the
    cluster would report no error.
    """
    given = session.arguments
    entity = _named_entity(given)
    known = [each.key for entry in _quotas_of(session.client, entity, is_exact=True) for each in entry.values]
    for name in given.quotas:
        if name not in known:
            there = f"it has {', '.join(sorted(known))}" if known else "it has none"
            raise Failure(f"{_text_of(entity)} has no quota {name}: {there}", status=EXIT_UNKNOWN)
    names = dict.fromkeys(given.quotas)
    return _alter(session, entity, [OpData(key=each, value=0.0, remove=True) for each in names])


def _named_entity(given: argparse.Namespace) -> Entity:
    entity = entity_of(given)
    if not entity:
        raise_wrong_arguments(
            "name one: --user, --client-id or --ip, or one of --default-user, --default-client-id, --default-ip"
        )
    return entity


def _no_quota(entity: Entity, name: str) -> Failure:
    from difflib import get_close_matches

    from moldau.security.quotas.entity import CLIENT_KEYS, IP, IP_KEYS

    known = IP_KEYS if entity[0][0] == IP else CLIENT_KEYS
    close = get_close_matches(name, known, 1)
    hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
    return Failure(f"{_text_of(entity)}: there is no quota {name}; {hint}", status=EXIT_UNKNOWN)


def _alter(session: Session, entity: Entity, changes: list[OpData]) -> int:
    given = session.arguments
    named = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
    request = AlterClientQuotasRequest(
        entries=[RequestEntryData(entity=named, ops=changes)], validate_only=given.dry_run
    )
    what = _text_of(entity)
    for entry in session.client.ask(request, AlterClientQuotasResponse).entries:
        if (entry.error_message or "").startswith(UNKNOWN_QUOTA):
            raise _no_quota(entity, str(entry.error_message).removeprefix(UNKNOWN_QUOTA))
        raise_if_error(entry.error_code, entry.error_message, f"the quotas of {what}")
    done = [f"{each.key} removed" if each.remove else f"{each.key}={number_text(each.value)}" for each in changes]
    session.output.say(f"{'can be changed' if given.dry_run else 'changed'} for {what}: {', '.join(done)}")
    for each in changes:
        value = None if each.remove else each.value
        session.output.object({**_names(entity), "quota": each.key, "value": value, "changed": not given.dry_run})
    return 0
