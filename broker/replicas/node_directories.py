"""Reading the meta.properties of a node's log directories, before any of them is opened."""

from __future__ import annotations

import logging
from typing import NamedTuple

from moldau.broker.config.config import Config
from moldau.broker.runtime.environment import Environment
from moldau.storage.checkpoints.meta_properties import (
    InvalidMetaProperties,
    MetaProperties,
    disagreement,
    read_meta_properties,
)

log = logging.getLogger("moldau.logs")


class NotFormatted(Exception):
    """The node cannot start with its directories; the message has advice for the operator."""


class Directories(NamedTuple):
    """The directories of a node by path: its log directories and its metadata directory."""

    properties: dict[str, MetaProperties]
    unusable: dict[str, str]
    """The directories that are offline from the start, with the reason."""


def look_into(environment: Environment, config: Config) -> Directories:
    """Read the meta.properties of all directories. A directory without a readable one is offline, as after a disk
    failure.

    Raises `NotFormatted`, `InvalidMetaProperties` or OSError where the node cannot start: the metadata directory or
    every log directory is offline, or the directories do not belong to one node.

    DIVERGES: Apache Kafka does not start where the meta.properties of a directory is missing or damaged; only a failed
    read takes the directory offline. Here all three take it offline, because the disk may not be mounted.
    """
    properties: dict[str, MetaProperties] = {}
    unusable: dict[str, Exception] = {}
    for path in dict.fromkeys((config.metadata_log_dir, *config.log_dirs)):
        try:
            found = read_meta_properties(environment.fs, path)
        except (InvalidMetaProperties, OSError) as error:
            unusable[path] = error
        else:
            if found is None:
                text = "not formatted. First run `moldau format -c` with the same file"
                unusable[path] = NotFormatted(f"{path}: {text}")
            else:
                properties[path] = found
    if config.metadata_log_dir in unusable or all(path in unusable for path in config.log_dirs):
        raise next(iter(unusable.values()))
    _check(config, properties)
    for path, why in unusable.items():
        log.error("log directory %s is offline: %s", path, why)
    return Directories(properties, {path: str(why) for path, why in unusable.items()})


def _check(config: Config, properties: dict[str, MetaProperties]) -> None:
    problem = disagreement(list(properties.items()))
    if problem is not None:
        raise NotFormatted(f"{problem}. Leave out of log.dirs what belongs to another cluster or node")
    node_id = next(iter(properties.values())).node_id
    if node_id != config.node_id:
        raise NotFormatted(
            f"{config.log_dirs[0]} belongs to node {node_id}, and the configuration says node.id={config.node_id}."
            f" Set node.id={node_id}, or give node {config.node_id} a directory of its own (--data DIR, or log.dirs)"
        )
