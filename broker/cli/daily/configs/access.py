"""Reads and changes the settings of topics, brokers, groups and client metrics, by DescribeConfigs and
IncrementalAlterConfigs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from moldau.broker.cli.daily.failures import EXIT_UNKNOWN, Failure, WrongArguments, raise_if_error
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)

if TYPE_CHECKING:
    from moldau.broker.cli.daily.client import Client

TOPIC: Final = 2
BROKER: Final = 4
BROKER_LOGGER: Final = 8
CLIENT_METRICS: Final = 16
GROUP: Final = 32
OWN_TOPIC: Final = 1
"""The `config_source` of a setting that is set for the topic itself."""
SET: Final = 0
DELETE: Final = 1
APPEND: Final = 2
SUBTRACT: Final = 3
UNKNOWN_NAME: Final = re.compile(
    r"[Uu]nknown (?:\w+ )*(?:config|property)[a-z ]*:? '?([\w.\-]+)|Logger ([\w.\-]+) does not exist"
)
"""Matches the message of a broker that does not know a setting, or a logger."""
Resource = tuple[int, str]
Change = tuple[int, str, str | None]
"""The operation on a setting, the name of the setting, and the value, which is None for a deletion."""


def describe_configs(
    client: Client, resources: Iterable[Resource], *, synonyms: bool = False, documentation: bool = False
) -> list[DescribeConfigsResult]:
    """Describe the settings of resources. A broker is asked for its own settings. Raises `Failure`."""
    found: list[DescribeConfigsResult] = []
    elsewhere: list[DescribeConfigsResource] = []
    for kind, name in resources:
        asked = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        if kind in (BROKER, BROKER_LOGGER) and name:
            found += _answers(client, [asked], int(name), synonyms, documentation)
        else:
            elsewhere.append(asked)
    return found + (_answers(client, elsewhere, None, synonyms, documentation) if elsewhere else [])


def _answers(
    client: Client, asked: list[DescribeConfigsResource], broker: int | None, synonyms: bool, documentation: bool
) -> list[DescribeConfigsResult]:
    request = DescribeConfigsRequest(resources=asked, include_synonyms=synonyms, include_documentation=documentation)
    if broker is None:
        return client.ask(request, DescribeConfigsResponse).results
    return client.ask_broker(broker, request, DescribeConfigsResponse).results


def alter(client: Client, resource: Resource, what: str, changes: Sequence[Change], *, validate_only: bool) -> None:
    """Change settings of a resource. The settings of a broker are changed by a request to that broker. `what` names the
    resource in messages. Raises `Failure`.
    """
    from moldau.protocol.messages.incremental_alter_configs import (
        AlterableConfig,
        AlterConfigsResource,
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
    )

    kind, name = resource
    configs = [AlterableConfig(name=key, config_operation=operation, value=value) for operation, key, value in changes]
    request = IncrementalAlterConfigsRequest(
        resources=[AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)],
        validate_only=validate_only,
    )
    if kind in (BROKER, BROKER_LOGGER) and name:
        reply = client.ask_broker(int(name), request, IncrementalAlterConfigsResponse)
    else:
        reply = client.ask(request, IncrementalAlterConfigsResponse)
    for each in reply.responses:
        raise_if_setting_refused(each.error_code, each.error_message, what)


def check_removed(client: Client, resource: Resource, what: str, changes: Iterable[Change]) -> None:
    """Raise `Failure` if `changes` remove a setting that does not exist for a resource of this kind. The cluster would
    accept the change, and a misspelled name would not be noticed. `what` names the resource, its kind first.
    """
    removed = [name for operation, name, _ in changes if operation == DELETE]
    if removed:
        (result,) = describe_configs(client, [resource])
        known = {each.name for each in result.configs} | set(_catalogue_of(what))
        for name in removed:
            if not result.error_code and name not in known:
                raise Failure(f"{what}: there is no setting {name}{_meant(name, what)}", status=EXIT_UNKNOWN)


def raise_if_setting_refused(code: int, message: str | None, what: str) -> None:
    """Raise `Failure` if the reply to a change of settings has an error `code`; `message` is the text of the error. For
    an unknown setting or logger, the failure names the one that was probably meant. `what` names the resource: its
    kind comes first.
    """
    match = UNKNOWN_NAME.search(message or "")
    if code in (ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST) and match is not None:
        name = match[1] or match[2]
        noun = "setting" if match[1] else "logger"
        meant = _meant(name, what)
        raise Failure(f"{what}: there is no {noun} {name}{meant} ({ErrorCode(code).name})", status=EXIT_UNKNOWN)
    raise_if_error(code, message, what)


def _meant(name: str, what: str) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, _catalogue_of(what), 1)
    shown = f": 'moldau config get {what.partition(' ')[0]} NAME --all' shows those that there are"
    return f"; did you mean {close[0]}?" if close else shown


def _catalogue_of(what: str) -> Iterable[str]:
    """The settings of the kind of resource with which `what` begins, as Apache Kafka has them; empty for brokers and
    loggers."""
    from moldau.broker.config.catalogue import client_metrics_catalogue, group_catalogue, topic_catalogue

    catalogues = {"topic": topic_catalogue, "group": group_catalogue, "client-metrics": client_metrics_catalogue}
    kind = what.partition(" ")[0]
    return catalogues[kind]() if kind in catalogues else ()


def pairs_of(given: Iterable[str], option: str) -> dict[str, str]:
    """Parse settings of the form NAME=VALUE. `option` names them in messages. Raises `WrongArguments`."""
    found: dict[str, str] = {}
    for each in given:
        name, is_pair, value = each.partition("=")
        if not is_pair or not name.strip():
            raise WrongArguments(f"{option} {each} is not NAME=VALUE")
        if name.strip() in found:
            raise WrongArguments(f"{option} {name.strip()} is given twice")
        found[name.strip()] = value.strip()
    return found


def changes_of(settings: Mapping[str, str], removed: Iterable[str]) -> list[Change]:
    """The changes that set the settings in `settings`, and remove those in `removed`."""
    return [(SET, name, value) for name, value in settings.items()] + [(DELETE, name, None) for name in removed]
