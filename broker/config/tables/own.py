"""The settings of this broker that Apache Kafka does not have."""

from __future__ import annotations

ROWS = """
moldau.audit.log.file  string  null  non-empty  honoured  read-only
    File of the audit log, one JSON object for each decision of the authorizer; the node's own log where it is not set.
moldau.audit.log.allowed  boolean  false  any  honoured  read-only
    Whether the requests that were allowed are logged too, in a file whose name ends with .allowed.
moldau.audit.log.retention.days  int  7  1..  honoured  read-only
    The age at which a file of the audit log is deleted. Nothing else deletes lines about denied requests.
moldau.batch.expanded.bytes.max  int  104857600  1..  honoured  read-only
    What the records of a compressed batch may expand to; a batch beyond is refused as too large. See docs/limits.md.
moldau.broker.silence.fence.ms  int  2500  0..  honoured  read-only
    Time without a heartbeat after which a broker that sends ten in it is fenced; 0: broker.session.timeout.ms alone.
moldau.http.listener  string  null  any  honoured  read-only
    Where metrics and health are served over HTTP, such as http://127.0.0.1:9464; nowhere where it is not set.
moldau.log.format  string  text  one-of:text,json  honoured  read-only
    How the node's own log is written to standard error: lines for people, or one JSON object a line.
moldau.queued.max.reply.bytes  long  67108864  any  honoured  read-only
    Bytes of replies that have not left, over all connections, above which fetches copy one batch each; -1 for no limit.
moldau.metrics.series.max  int  1000  0..  honoured  read-only
    Most topics, and most partitions, that have metrics of their own; those beyond count in the sums alone.
moldau.oauthbearer.allowed.urls  list  []  list  honoured  read-only
    URLs that OAUTHBEARER may fetch keys and tokens from; a Java property of Apache Kafka names them.
moldau.open.files.max  int  -1  -1..  honoured  read-only
    Most files that segments keep open between uses; -1 is half of what the process may have open, 0 means no bound.
moldau.slow.request.ms  long  1000  -1..  honoured  cluster-wide
    The time from which on the log has a line about a request with its stages: docs/latency.md; -1 for no lines.
moldau.tiered.compaction.bytes.per.pass  long  1073741824  1..  honoured  cluster-wide
    Bytes of remote segments of one compacted partition that one pass of the log cleaner reads; it cleans at least one.
moldau.tiered.superseded.retention.ms  long  600000  0..  honoured  cluster-wide
    How long a remote segment stays after a cleaned one took its place, for readers that still read it.
moldau.tiered.storage  string  null  non-empty  honoured  read-only
    Where segments are stored remotely: s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, or a directory.
moldau.tiered.storage.endpoint  string  null  non-empty  honoured  read-only
    URL of a server that is compatible with S3, such as http://127.0.0.1:9000; where it is not set, that of the vendor.
moldau.tiered.storage.region  string  null  non-empty  honoured  read-only
    Region of the bucket; where it is not set, that of the environment.
moldau.tiered.read.cache.bytes  long  67108864  1048576..  honoured  read-only
    Memory for what is read from remote storage: half for reads that wait to be fetched, half for blocks ahead of them.
moldau.tiered.read.ahead.bytes  long  16777216  0..  honoured  read-only
    How far ahead of a consumer that reads on and on remote segments are read; 0 turns that off.
moldau.tiered.storage.timeout.ms  long  30000  1..  honoured  read-only
    Longest time of one call to the object store, of which an upload in parts has one for each part.
"""
