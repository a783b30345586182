"""The reasons why settings are accepted without effect, or refused. `REASONS` has those of the settings in the tables,
by key. The other functions give advice about settings that Apache Kafka 4.3.1 no longer has, which an older
server.properties may contain.
"""

from __future__ import annotations

from typing import Final

REASONS: Final = {
    "backlog": "Listeners let the kernel hold 512 connections.",
    "checkpoints": "Checkpoints of a directory are written together, by replica.high.watermark.checkpoint.interval.ms.",
    "cordon": "Directories cannot be cordoned in this version; take the directory out of log.dirs.",
    "early-listeners": "Listeners of controllers open before the ACLs are loaded, to super users alone; others after.",
    "failed-directory": "A log directory that fails is reported at once and with every heartbeat from then on.",
    "java-tls": "OpenSSL does TLS here; there is no Java provider to choose.",
    "kerberos": "Kerberos (GSSAPI) is refused as a mechanism, so nothing reads it.",
    "kernel": "The kernel sizes socket buffers by what a connection needs.",
    "linger": "The coordinator writes the records of one event loop iteration together.",
    "listener": "It is not among the settings that a single listener can have of its own.",
    "metrics": "Metrics are kept in windows of their own.",
    "move-directories": "Replicas do not move between the directories of a broker in this version.",
    "nothing-unstable": "There is nothing unreleased here that it could offer.",
    "performance-log": "Slow controller events are not logged by a threshold.",
    "one-fetcher": "One connection to each leader fetches all that is to be replicated from it.",
    "peer-connection": "A node gives a connection to another one 5 s.",
    "peer-patience": "What a node asks of another waits as long as the request itself says.",
    "plugin": "It names Java classes, which this broker cannot load.",
    "preallocate": "Segments grow as they are written.",
    "purgatory": "A waiting request leaves the purgatory when it is answered; nothing is left to purge.",
    "quorum-flush": "The metadata log is made durable as soon as the disk is free; nothing waits for more records.",
    "rack-tags": "Standby tasks are not spread by tags of clients in this version.",
    "sasl": "Nothing reads it in this version.",
    "share": "There is one assignor of share groups: simple.",
    "streams": "There is one assignor of streams groups: sticky.",
    "test-only": "It exists for Apache Kafka's own tests.",
    "threads": "One event loop answers all requests; there is no pool of threads to size.",
    "tiered": "Tiered storage works without it in this version.",
    "tiered-class": "Java classes are not loaded: moldau.tiered.storage names the storage, and there is one keeper of"
    " the metadata.",
    "two-phase-commit": "Two-phase commit is unreleased in Apache Kafka 4.3 and is not part of this version.",
    "warm-up": "Tasks of streams groups are assigned without warm-up replicas, as in Apache Kafka 4.3.1 and 4.4.0.",
}

_NO_ZOOKEEPER: Final = (
    "it belongs to a cluster that ZooKeeper manages; this broker keeps its metadata in a KRaft log, as every Apache "
    "Kafka since 4.0. Remove it, set process.roles=broker,controller, node.id, controller.listener.names and "
    "controller.quorum.bootstrap.servers, then run 'moldau format'. A directory that ZooKeeper managed is migrated "
    "with Apache Kafka 3.9 first"
)

# Refused: the setting asks for something that this version does not do.
_REFUSED_PREFIXES: Final = ("zookeeper.", "password.encoder.")
_REFUSED: Final = {
    "broker.id.generation.enable": "node numbers are not handed out; set node.id",
    "reserved.broker.max.id": "node numbers are not handed out; set node.id",
    "control.plane.listener.name": "a KRaft controller has listeners of its own; set controller.listener.names",
    "host.name": "set listeners=PLAINTEXT://<host>:<port>",
    "port": "set listeners=PLAINTEXT://<host>:<port>",
    "advertised.host.name": "set advertised.listeners=PLAINTEXT://<host>:<port>",
    "advertised.port": "set advertised.listeners=PLAINTEXT://<host>:<port>",
    "zookeeper.metadata.migration.enable": _NO_ZOOKEEPER,
}

# Without effect: Apache Kafka 4 ignores these names.
_IGNORED: Final = {
    "inter.broker.protocol.version": "the level of the cluster is set when it is formatted: moldau format --feature",
    "log.message.format.version": "records are always stored in format 2",
    "log.message.downconversion.enable": "records are always sent in format 2",
    "log.message.timestamp.difference.max.ms": "set log.message.timestamp.before.max.ms and .after.max.ms",
    "leader.imbalance.per.broker.percentage": "it was removed in Apache Kafka 4.0",
    "controlled.shutdown.max.retries": "it was removed in Apache Kafka 4.0",
    "controlled.shutdown.retry.backoff.ms": "it was removed in Apache Kafka 4.0",
    "controller.message.queue.size": "it was removed in Apache Kafka 4.0",
    "auto.include.jmx.reporter": "it was removed in Apache Kafka 4.0",
    "group.coordinator.new.enable": "it was removed in Apache Kafka 4.0",
    "eligible.leader.replicas.enable": "it is a feature level: moldau format --feature",
    "delegation.token.master.key": "set delegation.token.secret.key",
    "quota.producer.default": "quotas are set with kafka-configs",
    "quota.consumer.default": "quotas are set with kafka-configs",
}


def refusal_of(name: str) -> str | None:
    """Why a setting that Apache Kafka has removed prevents the start of a node, with advice; None if it does not."""
    if name in _REFUSED:
        return _REFUSED[name]
    return _NO_ZOOKEEPER if name.startswith(_REFUSED_PREFIXES) else None


def advice_for(name: str) -> str | None:
    """The advice for a removed setting that has no effect; None for any other name."""
    return _IGNORED.get(name)


def advice_on_refused() -> dict[str, str]:
    """The advice for each removed setting that prevents a start, by its name or prefix."""
    return _REFUSED | {f"{prefix}*": _NO_ZOOKEEPER for prefix in _REFUSED_PREFIXES}


def advice_on_ignored() -> dict[str, str]:
    """The advice for each removed setting that has no effect, by name."""
    return dict(_IGNORED)
