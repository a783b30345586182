"""The actions of `moldau config`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from moldau.broker.cli.daily.client import Client
from moldau.broker.cli.daily.configs.access import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    GROUP,
    TOPIC,
    Change,
    Resource,
    alter,
    changes_of,
    check_removed,
    describe_configs,
    pairs_of,
)
from moldau.broker.cli.daily.failures import (
    EXIT_UNKNOWN,
    Failure,
    WrongArguments,
    raise_if_error,
    raise_wrong_arguments,
    unknown_failure,
)
from moldau.broker.cli.daily.session import Session

if TYPE_CHECKING:
    from moldau.protocol.messages.describe_configs import DescribeConfigsResult

CODES: Final = {
    "topic": TOPIC,
    "broker": BROKER,
    "brokers": BROKER,
    "broker-logger": BROKER_LOGGER,
    "group": GROUP,
    "client-metrics": CLIENT_METRICS,
}
SOURCES: Final = {
    1: "topic",
    2: "broker",
    3: "all brokers",
    4: "file of the broker",
    5: "default",
    6: "logger",
    7: "client metrics",
    8: "group",
}
DEFAULT: Final = 5
SHOWN: Final = ("setting", "value", "from")


def get(session: Session) -> int:
    """Print the settings of one resource (`config get`)."""
    given, client = session.arguments, session.client
    name, wanted = _named(given.kind, given.words)
    _check_there(client, given.kind, name)
    (result,) = describe_configs(client, [(CODES[given.kind], name)], synonyms=True)
    raise_if_error(result.error_code, result.error_message, _what(given.kind, name))
    rows = _rows(result, set(wanted), everything=given.all)
    missing = [each for each in wanted if each not in {row["setting"] for row in rows}]
    if missing:
        raise _no_setting(result, missing[0])
    told = f"{_what(given.kind, name)} has no settings of its own: --all shows the defaults"
    session.output.rows(rows, SHOWN, empty=told)
    return 0


def _rows(result: DescribeConfigsResult, wanted: set[str], *, everything: bool) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for each in sorted(result.configs, key=lambda config: config.name):
        is_set = each.config_source != DEFAULT and (result.resource_type != TOPIC or each.config_source == 1)
        if each.name in wanted or (not wanted and (everything or is_set)):
            rows.append(
                {
                    "setting": each.name,
                    "value": "(hidden)" if each.is_sensitive else each.value,
                    "from": SOURCES.get(each.config_source, str(each.config_source)),
                    "is_read_only": each.read_only,
                    "is_sensitive": each.is_sensitive,
                }
            )
    return rows


def _no_setting(result: DescribeConfigsResult, name: str) -> Failure:
    from difflib import get_close_matches

    close = get_close_matches(name, [each.name for each in result.configs], 1)
    hint = f"; did you mean {close[0]}?" if close else ""
    return Failure(f"there is no setting {name}{hint}", status=EXIT_UNKNOWN)


def set_settings(session: Session) -> int:
    """Set settings (`config set`)."""
    name, words = _named(session.arguments.kind, session.arguments.words)
    if not words:
        raise_wrong_arguments("give the settings as NAME=VALUE")
    return _alter(session, name, changes_of(pairs_of(words, "the setting"), ()))


def unset_settings(session: Session) -> int:
    """Remove settings (`config unset`)."""
    name, words = _named(session.arguments.kind, session.arguments.words)
    if not words:
        raise_wrong_arguments("give the names of the settings")
    return _alter(session, name, changes_of({}, words))


def _alter(session: Session, name: str, changes: Sequence[Change]) -> int:
    given, client = session.arguments, session.client
    resource: Resource = (CODES[given.kind], name)
    _check_there(client, given.kind, name)
    what = _what(given.kind, name)
    if resource[0] == BROKER:
        _warn_of_unknown(session, name, [key for _, key, _ in changes])
    else:
        check_removed(client, resource, what, changes)
    alter(client, resource, what, changes, validate_only=given.dry_run)
    verb = "can be changed" if given.dry_run else "changed"
    done = ", ".join(f"{key} as by default" if value is None else f"{key}={value}" for _, key, value in changes)
    session.output.say(f"{verb} for {what}: {done}")
    session.output.object({"kind": given.kind, "name": name, "changed": not given.dry_run})
    return 0


def _warn_of_unknown(session: Session, name: str, settings: Sequence[str]) -> None:
    """Warn of settings that the broker does not know. Apache Kafka accepts any name for a broker, because a plug-in may
    read the setting.
    """
    from moldau.broker.config.catalogue import OWN_PREFIX, broker_catalogue

    client = session.client
    client.topics([])
    (result,) = describe_configs(client, [(BROKER, name or str(min(client.brokers)))])
    # A broker lists its own settings, those that Apache Kafka does not have, once they are set.
    known = {each.name for each in result.configs} | {
        each for each in broker_catalogue() if each.startswith(OWN_PREFIX)
    }
    for each in settings:
        if each not in known and not each.startswith("listener.name.") and not result.error_code:
            session.note(str(_no_setting(result, each)), "yellow")


def _named(kind: str, words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Split the arguments into the name of the resource and the words after it. All brokers together have the name
    "".
    """
    if kind == "brokers":
        return "", words
    if not words or "=" in words[0]:
        raise WrongArguments(f"give the name of the {kind}")
    name = words[0]
    if kind.startswith("broker") and not name.isdecimal():
        raise WrongArguments(f"{name} is not the id of a broker; 'brokers' are all of them")
    return name, words[1:]


def _what(kind: str, name: str) -> str:
    return f"{kind} {name}".rstrip()


def _check_there(client: Client, kind: str, name: str) -> None:
    """Raise `Failure` if the topic or the broker does not exist. A group and a client metrics subscription may have
    settings before they exist.
    """
    if kind == "topic":
        client.known_topics([name])
    elif kind.startswith("broker") and name:
        client.topics([])
        if int(name) not in client.brokers:
            raise unknown_failure("broker", name, map(str, client.brokers))
