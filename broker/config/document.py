"""Computes docs/configuration.md from the catalogue: `python -m moldau.broker.config.document`.

`--unread` lists instead the settings that the catalogue calls honoured, but that no module reads.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from moldau.broker.config.catalogue import (
    broker_catalogue,
    client_metrics_catalogue,
    dynamic_only_catalogue,
    group_catalogue,
    topic_catalogue,
)
from moldau.broker.config.layers import needs_restart
from moldau.broker.config.reasons import REASONS, advice_on_ignored, advice_on_refused
from moldau.broker.config.setting import Catalogue, Setting, Stance
from moldau.broker.config.values import allowed_text

_INTRODUCTION = """\
# Configuration

This page is computed from the catalogue in `broker/config/tables` by `python -m moldau.broker.config.document`; a test
holds it against the tables, and the tables against Apache Kafka 4.3.1.

Settings are Apache Kafka's own. A later source wins:

1. the file, in Java's properties format: `moldau serve server.properties`
2. environment variables as in the official image: `KAFKA_LOG_DIRS` is `log.dirs`; `_` is a dot, `__` an underscore,
   `___` a dash. One warning names the variables that name no setting (KAFKA_LIB, KAFKA_SERVICE_HOST)
3. `--data DIR`, which is `log.dirs`
4. `--override name=value`

Every name that Apache Kafka 4.3.1 knows is in one of three lists; names that begin with `moldau.` are our own. An
unknown name warns at start and has no effect; a value that its setting does not take stops the start and says what is
allowed.

| | settings of brokers | what happens |
|---|---|---|
| [honoured](#honoured) | {honoured} | works as in Apache Kafka |
| [accepted without effect](#accepted-without-effect) | {accepted} | one warning at start where it is not the default |
| [refused](#refused) | {refused} | any value but the default (or nothing) stops the start |

*Changes* says when a setting may change: `cluster` at run time for all brokers or one, `broker` at run time for one
broker, `start` only in the file; `start (Kafka: broker)` where Apache Kafka would change it at run time. Of the
names of a single listener (`listener.name.<listener>.<setting>`) those of `max.connections`,
`max.connection.creation.rate`, `ssl.*` and `sasl.*` work, the others are accepted without effect. Settings that exist
for Apache Kafka's own tests are marked *internal*; DescribeConfigs leaves them out. [Limits](limits.md) says what
happens at each limit.
"""
_ONLY_CHECKED = ("catalogue.py", "retired.py", "rules.py", "group_rules.py", "sources.py")
_CHANGES = {"cluster-wide": "cluster", "per-broker": "broker", "read-only": "start"}


def document() -> str:
    """The text of docs/configuration.md."""
    catalogue = broker_catalogue()
    counts = {stance.value: sum(s.stance is stance for s in catalogue.values()) for stance in Stance}
    lines = [_INTRODUCTION.format(**counts)]
    lines += ["## Honoured", "", *_honoured(catalogue), ""]
    lines += ["## Accepted without effect", "", *_by_reason(catalogue, Stance.ACCEPTED)]
    lines += ["## Refused", "", *_by_reason(catalogue, Stance.REFUSED)]
    lines += ["## Names of earlier releases", "", *_retired(), ""]
    lines += ["## Settings of topics", "", *_resource(topic_catalogue()), ""]
    lines += ["## Settings of groups", "", *_resource(group_catalogue()), ""]
    lines += ["## Settings of client metrics subscriptions", "", *_resource(client_metrics_catalogue()), ""]
    lines += ["## Settings of brokers that exist only at run time", "", *_resource(dynamic_only_catalogue()), ""]
    return "\n".join(lines)


def _honoured(catalogue: Catalogue) -> Iterator[str]:
    yield "| name | what it means | default | allowed | changes |"
    yield "|---|---|---|---|---|"
    for setting in _sorted(catalogue, Stance.HONOURED):
        yield _row(
            setting.name + _flag(setting),
            setting.documentation,
            _default(setting),
            allowed_text(setting),
            _changes(setting),
        )


def _by_reason(catalogue: Catalogue, stance: Stance) -> Iterator[str]:
    for key, reason in sorted(REASONS.items(), key=lambda item: item[1]):
        settings = [setting for setting in _sorted(catalogue, stance) if setting.reason_key == key]
        if not settings:
            continue
        yield f"**{reason}**"
        yield ""
        yield "| name | what it means in Apache Kafka | default | changes |"
        yield "|---|---|---|---|"
        for setting in settings:
            yield _row(setting.name + _flag(setting), setting.documentation, _default(setting), _changes(setting))
        yield ""


def _retired() -> Iterator[str]:
    yield "| name | here | what to do |"
    yield "|---|---|---|"
    for name, advice in sorted(advice_on_refused().items()):
        yield _row(name, "refused", advice)
    for name, advice in sorted(advice_on_ignored().items()):
        yield _row(name, "warns", advice)


def _resource(catalogue: Catalogue) -> Iterator[str]:
    yield "| name | what it means | default | allowed | taken from | here |"
    yield "|---|---|---|---|---|---|"
    for name in sorted(catalogue):
        setting = catalogue[name]
        stance = setting.stance.value if setting.stance is Stance.HONOURED else REASONS[setting.reason_key]
        source = ", ".join(f"`{each}`" for each in setting.defaults_from)
        yield _row(
            name + _flag(setting), setting.documentation, _default(setting), allowed_text(setting), source, stance
        )


def _row(name: str, *cells: str) -> str:
    name, _, flag = name.partition(" ")
    return f"| `{name}`{' ' + flag if flag else ''} | " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _sorted(catalogue: Catalogue, stance: Stance) -> list[Setting]:
    return [catalogue[name] for name in sorted(catalogue) if catalogue[name].stance is stance]


def _flag(setting: Setting) -> str:
    return " *internal*" if setting.is_internal else ""


def _default(setting: Setting) -> str:
    if setting.is_required:
        return "*must be set*"
    return f"`{setting.default_text}`" if setting.default_text else ""


def _changes(setting: Setting) -> str:
    changes = _CHANGES[setting.scope.value]
    return f"start (Kafka: {changes})" if needs_restart(setting.name) else changes


_BY_FIELD = re.compile(r"object_of_settings\(([^()=]*)")
_PREFIX = re.compile(r'"([a-z.]+\.)"')


def unread_settings(root: Path) -> list[str]:
    """The honoured broker settings that no module reads, neither by name nor by `object_of_settings` with a prefix
    of the name. The modules of the catalogue do not count.
    """
    # A check of a value is not a use of it.
    modules = [path for path in root.rglob("*.py") if "tables" not in path.parts and path.name not in _ONLY_CHECKED]
    text = "\n".join(path.read_text("utf-8") for path in modules)
    prefixes = tuple({prefix for call in _BY_FIELD.findall(text) for prefix in _PREFIX.findall(call)})
    wanted = [setting.name for setting in _sorted(broker_catalogue(), Stance.HONOURED)]
    by_topic = {name for setting in topic_catalogue().values() for name in setting.defaults_from}
    return [
        name for name in wanted if f'"{name}"' not in text and name not in by_topic and not name.startswith(prefixes)
    ]


if __name__ == "__main__":
    if "--unread" in sys.argv[1:]:
        print(*unread_settings(Path(__file__).parents[1]), sep="\n")  # noqa: T201
    else:
        print(document(), end="")  # noqa: T201
