"""The reasons for which settings are accepted without effect, or refused: one sentence for each key of the tables."""

from __future__ import annotations

from typing import Final

REASONS: Final = {
    "authorizer": "There are no access controls in this version; a client that reaches a listener may do anything.",
    "backlog": "Listeners let the kernel hold 512 connections.",
    "checkpoints": "Checkpoints of a directory are written together, by replica.high.watermark.checkpoint.interval.ms.",
    "cordon": "Directories cannot be cordoned in this version; take the directory out of log.dirs.",
    "failed-directory": "A log directory that fails is reported at once and with every heartbeat from then on.",
    "java-tls": "OpenSSL does TLS here; there is no Java provider to choose.",
    "kerberos": "Kerberos (GSSAPI) is refused as a mechanism, so nothing reads it.",
    "kernel": "The kernel sizes socket buffers by what a connection needs.",
    "kip848": "The consumer group protocol of KIP-848 is not served in this version; groups are classic.",
    "linger": "The coordinator writes the records of one event loop iteration together.",
    "listener": "Settings of a single listener have no effect in this version.",
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
    "quota": "Quotas are not enforced in this version.",
    "sasl": "Nothing reads it in this version.",
    "share": "Share groups are not served in this version.",
    "streams": "Streams groups are not served in this version.",
    "test-only": "It exists for Apache Kafka's own tests.",
    "threads": "One event loop answers all requests; there is no pool of threads to size.",
    "tiered": "Tiered storage works without it in this version.",
    "tiered-class": "Java classes are not loaded: moldau.tiered.storage names the storage, and there is one keeper of"
    " the metadata.",
    "two-phase-commit": "Two-phase commit is unreleased in Apache Kafka 4.3 and is not part of this version.",
}
