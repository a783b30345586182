"""The catalogue of settings: those of Apache Kafka 4.3.1 and our own. The tables are parsed at first use."""

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
    """Settings of the broker and the controller, by name."""
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
    """Settings of a topic, by name."""
    from moldau.broker.config.tables import resources

    return read_rows(resources.TOPIC_ROWS)


@cache
def group_catalogue() -> Catalogue:
    """Settings of a group, by name."""
    from moldau.broker.config.tables import resources

    return read_rows(resources.GROUP_ROWS)


@cache
def client_metrics_catalogue() -> Catalogue:
    """Settings of a client metrics subscription, by name."""
    from moldau.broker.config.tables import resources

    return read_rows(resources.CLIENT_METRICS_ROWS)


@cache
def dynamic_only_catalogue() -> Catalogue:
    """Broker settings that exist only at run time and cannot be in a file, by name."""
    from moldau.broker.config.tables import resources

    return read_rows(resources.DYNAMIC_ONLY_ROWS)


def unit_synonyms(name: str) -> tuple[str, ...]:
    """The names of a broker setting in all units, including its own; the one that takes precedence comes first."""
    for names in UNIT_SYNONYMS:
        if name in names:
            return names
    return (name,)


def base_name(name: str) -> str:
    """The setting of a prefixed name: listener.name.<listener>.[<mechanism>.]<setting>."""
    if not name.startswith("listener.name."):
        return name
    _, _, rest = name.removeprefix("listener.name.").partition(".")
    catalogue = broker_catalogue()
    if rest in catalogue:
        return rest
    _, _, without_mechanism = rest.partition(".")
    return without_mechanism if without_mechanism in catalogue else name


def broker_setting(name: str) -> Setting | None:
    """The catalogue's row for a broker's setting, also under a listener's prefix."""
    return broker_catalogue().get(base_name(name))
