"""Rules for changes of settings at run time; a configuration file need not keep them. They are Apache Kafka's limits on
the step from one value to the next, and on settings that depend on each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from moldau.broker.config.config import Config

_THREAD_COUNTS: Final = (
    "num.io.threads",
    "num.replica.fetchers",
    "num.recovery.threads.per.data.dir",
    "background.threads",
    "remote.log.reader.threads",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.follower.thread.pool.size",
)
_CLEANER_THREADS: Final = "log.cleaner.threads"
_CLEANER_BUFFER: Final = "log.cleaner.dedupe.buffer.size"
_CLEANER_THREAD_BUFFER_SIZE: Final = 1 << 20
"""The least buffer (bytes, exclusive) of a cleaner thread."""


def broken_change_rules(before: Config, after: Config) -> Iterator[str]:
    """The rules that the change from `before` to `after` breaks, with Apache Kafka's messages. A value that breaks a
    rule, but is not changed, is not reported.
    """
    if _changed((_CLEANER_THREADS, _CLEANER_BUFFER), before, after):
        yield from _cleaner_buffer(after)
    for problem in (
        *_connections(before, after),
        *_thread_counts(before, after),
        *_cleaner_threads(before, after),
        *_local_retention(before, after),
    ):
        said = f"org.apache.kafka.common.config.ConfigException: {problem}"
        yield f"Invalid value {said} for configuration Invalid dynamic configuration"


def _changed(names: tuple[str, ...], before: Config, after: Config) -> bool:
    return any(before.settings.value(name) != after.settings.value(name) for name in names)


def _cleaner_buffer(after: Config) -> Iterator[str]:
    """Report a cleaner buffer that is too small for the number of cleaner threads.

    DIVERGES: Apache Kafka also refuses to start with a smaller buffer; here such a file is taken, and the cleaner makes
    more rounds. For log.cleaner.threads=0 Apache Kafka answers "/ by zero", and this broker nothing.
    """
    threads = after.settings.integer(_CLEANER_THREADS)
    if threads > 0 and after.settings.integer(_CLEANER_BUFFER) // threads <= _CLEANER_THREAD_BUFFER_SIZE:
        yield f"requirement failed: {_CLEANER_BUFFER} must be at least 1MB per cleaner thread."


def _connections(before: Config, after: Config) -> Iterator[str]:
    for base in ("max.connections", "max.connection.creation.rate"):
        for name in _of_all_listeners(base, after):
            if _changed((name,), before, after) and after.settings.integer(name) == 0:
                yield f"Invalid {base} 0"


def _thread_counts(before: Config, after: Config) -> Iterator[str]:
    network_threads = "num.network.threads"
    steps = [
        (network_threads, before.settings.integer(network_threads), after.settings.integer(network_threads)),
        *(
            (
                network_threads,
                before.settings.integer(before.settings.listener_setting_name(each.name, network_threads)),
                after.settings.integer(after.settings.listener_setting_name(each.name, network_threads)),
            )
            for each in after.listeners
        ),
        *((name, before.settings.integer(name), after.settings.integer(name)) for name in _THREAD_COUNTS),
    ]
    for name, current, count in steps:
        failed = f"Dynamic thread count update validation failed for {name}={count}"
        if count < current // 2:
            yield f"{failed}, value should be at least half the current value {current}"
        if count > current * 2:
            yield f"{failed}, value should not be greater than double the current value {current}"


def _cleaner_threads(before: Config, after: Config) -> Iterator[str]:
    current, count = before.settings.integer(_CLEANER_THREADS), after.settings.integer(_CLEANER_THREADS)
    if count == current:
        return
    if count < 1:
        yield "Log cleaner threads should be at least 1"
    elif count < current // 2:
        yield f"Log cleaner threads cannot be reduced to less than half the current value {current}"
    elif count > max(1, current * 2):
        yield f"Log cleaner threads cannot be increased to more than double the current value {current}"


def _local_retention(before: Config, after: Config) -> Iterator[str]:
    """Report a local retention of tiered topics that exceeds the retention of the whole log. The local value -2 means
    the whole retention.
    """
    for unit, kept, was_kept in (
        ("ms", after.log_retention_ms, before.log_retention_ms),
        ("bytes", after.settings.integer("log.retention.bytes"), before.settings.integer("log.retention.bytes")),
    ):
        name, total = f"log.local.retention.{unit}", f"log.retention.{unit}"
        local = after.settings.integer(name)
        if kept == -1 or local == -2 or (kept == was_kept and local == before.settings.integer(name)):
            continue
        if local == -1:
            yield f"Invalid value -1 for configuration {name}: Value must not be -1 as {total} value is set as {kept}."
        elif local > kept:
            yield (
                f"Invalid value {local} for configuration {name}: "
                f"Value must not be more than {total} property value: {kept}"
            )


def _of_all_listeners(name: str, config: Config) -> tuple[str, ...]:
    return (name, *(config.settings.listener_setting_name(each.name, name) for each in config.listeners))
