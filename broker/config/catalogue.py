"""The catalogue of settings: those of Apache Kafka 4.3.1, and those of this broker only. The tables are parsed when
they are first used.
"""

from __future__ import annotations

from functools import cache

from moldau.broker.config.setting import Catalogue, Setting, read_rows

OWN_PREFIX = "moldau."
"""The prefix of settings that Apache Kafka does not have."""

# Settings of the same value in different units. The first of them that is set takes precedence (observed of Kafka's
# DynamicBrokerConfig).
UNIT_SYNONYMS: tuple[tuple[str, ...], ...] = (
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
)


@cache
def broker_catalogue() -> Catalogue:
    """The settings of the broker and the controller, by name."""
    from moldau.broker.config.tables import groups, node, security, topics

    return (
        read_rows(node.ROWS)
        | read_rows(topics.LOG_ROWS)
        | read_rows(topics.ROWS)
        | read_rows(groups.ROWS)
        | read_rows(security.ROWS)
        | read_rows(node.OWN_ROWS)
    )


@cache
def topic_catalogue() -> Catalogue:
    """The settings of a topic, by name."""
    from moldau.broker.config.tables import resources

    return read_rows(resources.TOPIC_ROWS)


@cache
def group_catalogue() -> Catalogue:
    """The settings of a group, by name."""
    from moldau.broker.config.tables import resources

    return read_rows(resources.GROUP_ROWS)


@cache
def client_metrics_catalogue() -> Catalogue:
    """The settings of a client metrics subscription, by name."""
    from moldau.broker.config.tables import resources

    return read_rows(resources.CLIENT_METRICS_ROWS)


@cache
def dynamic_only_catalogue() -> Catalogue:
    """The broker settings that can only be set at run time and not in a file, by name."""
    from moldau.broker.config.tables import resources

    return read_rows(resources.DYNAMIC_ONLY_ROWS)


def unit_synonyms(name: str) -> tuple[str, ...]:
    """The names of a broker setting in all its units, such as log.retention.ms and log.retention.hours. The name that
    takes precedence comes first. A setting with one unit has only its own name.
    """
    for names in UNIT_SYNONYMS:
        if name in names:
            return names
    return (name,)


def base_name(name: str) -> str:
    """The name of a setting without the prefix listener.name.<listener>.[<mechanism>.]; the name itself if it has no
    such prefix.
    """
    if not name.startswith("listener.name."):
        return name
    _, _, rest = name.removeprefix("listener.name.").partition(".")
    catalogue = broker_catalogue()
    if rest in catalogue:
        return rest
    _, _, without_mechanism = rest.partition(".")
    return without_mechanism if without_mechanism in catalogue else name


def broker_setting(name: str) -> Setting | None:
    """The catalogue's entry for a broker setting, whose name may have a listener's prefix; None if there is none."""
    return broker_catalogue().get(base_name(name))
