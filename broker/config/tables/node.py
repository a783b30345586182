"""Settings of the node itself: roles, listeners, metadata quorum, sockets and metrics; and settings that only this
broker has.
"""

from __future__ import annotations

# DIVERGES: socket.send.buffer.bytes is 102400 by default in Apache Kafka. Twice as much gives a client with one fetch
# in flight half as much again: the rows "fetch 1 MiB" of docs/performance.md.
ROWS = """
process.roles  list  required  non-empty-list:broker,controller  honoured  read-only
    What this process is: broker, controller, or both.
node.id  int  required  0..  honoured  read-only
    Number of this node, unique in its cluster.
broker.id  int  -1  any  honoured  read-only
    Older spelling of node.id; both must agree where both are set.
broker.rack  string  null  any  honoured  read-only
    Rack or zone of this node, reported to clients.
listeners  list  PLAINTEXT://:9092  non-empty-list  honoured  per-broker
    Addresses on which the node listens: NAME://host:port; an empty host means every interface.
advertised.listeners  list  null  non-empty-list  honoured  read-only
    Addresses that clients are told to use; those of listeners where it is not set.
listener.security.protocol.map  string  \
    SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT  \
    any  honoured  per-broker
    Security protocol of each listener name.
inter.broker.listener.name  string  null  any  honoured  read-only
    Listener over which brokers talk to one another.
security.inter.broker.protocol  string  PLAINTEXT  one-of:PLAINTEXT,SSL,SASL_PLAINTEXT,SASL_SSL  honoured  read-only
    Protocol between brokers where inter.broker.listener.name is not set.
controller.listener.names  list  required  non-empty-list  honoured  read-only
    Listeners that belong to the controller.
early.start.listeners  list  null  list  accepted:early-listeners  read-only
    Listeners opened before the authorizer has loaded.
controller.quorum.voters  list  []  voters  honoured  read-only
    Static voters of the metadata quorum: id@host:port.
controller.quorum.bootstrap.servers  list  []  host-ports  honoured  read-only
    Where the controllers of the metadata quorum are found.
controller.quorum.election.timeout.ms  int  1000  0..  honoured  read-only
    Longest wait for a quorum before a new election.
controller.quorum.election.backoff.max.ms  int  1000  0..  honoured  read-only
    Longest pause after an election that no candidate won.
controller.quorum.fetch.timeout.ms  int  2000  0..  honoured  read-only
    Longest time without a fetch from the leader before an election.
controller.quorum.fetch.max.bytes  int  1048576  1..  honoured  read-only
    Size of one fetch between quorum nodes.
controller.quorum.fetch.snapshot.max.bytes  int  1048576  1..  honoured  read-only
    Size of one piece of a snapshot between quorum nodes.
controller.quorum.request.timeout.ms  int  2000  0..  honoured  read-only
    Longest wait for an answer between quorum nodes.
controller.quorum.retry.backoff.ms  int  20  0..  honoured  read-only
    Pause before a quorum request is sent again.
controller.quorum.append.linger.ms  int  25  0..  accepted:quorum-flush  read-only
    How long the quorum leader collects writes before a flush.
controller.quorum.auto.join.enable  boolean  false  any  honoured  read-only
    Whether a controller adds itself to the voters.
controller.socket.timeout.ms  int  30000  any  accepted:peer-patience  read-only
    Socket timeout from broker to controller.
controller.performance.sample.period.ms  long  60000  100..  accepted:performance-log  read-only internal
    Interval between log lines about controller performance.
controller.performance.always.log.threshold.ms  long  2000  0..  accepted:performance-log  read-only internal
    Controller events slower than this are always logged.
broker.heartbeat.interval.ms  int  2000  any  honoured  read-only
    Interval between heartbeats of a broker to the controller.
broker.session.timeout.ms  int  9000  any  honoured  read-only
    Time without a heartbeat after which the controller fences a broker.
initial.broker.registration.timeout.ms  int  60000  any  honoured  read-only
    Longest wait for the first registration with the controller.
controlled.shutdown.enable  boolean  true  any  honoured  read-only
    Whether leaders move away before a broker stops.
metadata.log.dir  string  null  any  honoured  read-only
    Directory of the metadata log; the first of log.dirs where it is not set.
metadata.log.segment.bytes  int  1073741824  8388608..  honoured  read-only
    Size at which a segment of the metadata log is closed.
metadata.log.segment.ms  long  604800000  any  honoured  read-only
    Age at which a segment of the metadata log is closed.
metadata.log.max.record.bytes.between.snapshots  long  20971520  1..  honoured  read-only
    Bytes of new metadata records after which a snapshot is made.
metadata.log.max.snapshot.interval.ms  long  3600000  0..  honoured  read-only
    Longest time between two snapshots when there are new records; 0 for no limit.
metadata.max.idle.interval.ms  int  500  0..  honoured  read-only
    Interval of no-op records in an idle metadata log; 0 for none.
metadata.max.retention.bytes  long  104857600  any  honoured  read-only
    Size of metadata log and snapshots above which old ones are deleted.
metadata.max.retention.ms  long  604800000  any  honoured  read-only
    Age after which old metadata segments and snapshots are deleted.
internal.metadata.log.segment.bytes  int  null  any  honoured  read-only internal
    Segment size of the metadata log below the public minimum, for tests.
internal.metadata.delete.delay.millis  long  60000  any  accepted:test-only  read-only internal
    Delay before a deleted metadata file is removed, for tests.
internal.metadata.max.batch.size.in.bytes  int  8388608  any  accepted:test-only  read-only internal
    Largest batch of the metadata log, for tests.
server.max.startup.time.ms  long  9223372036854775807  0..  accepted:test-only  read-only internal
    Longest time that start-up may take, for tests.
unstable.api.versions.enable  boolean  false  any  accepted:nothing-unstable  read-only internal
    Whether unreleased API versions are offered.
unstable.feature.versions.enable  boolean  false  any  accepted:nothing-unstable  read-only internal
    Whether unreleased feature levels may be used.
num.network.threads  int  3  1..  accepted:threads  cluster-wide
    Threads that read and write sockets.
num.io.threads  int  8  1..  accepted:threads  cluster-wide
    Threads that work on requests.
background.threads  int  10  1..  accepted:threads  cluster-wide
    Threads for background work.
queued.max.requests  int  500  1..  accepted:threads  read-only
    Requests that may wait for a thread.
queued.max.request.bytes  long  -1  any  honoured  read-only
    Bytes that requests may hold that have not arrived whole, over all connections; -1 for no limit. See docs/limits.md.
request.timeout.ms  int  30000  any  honoured  read-only
    Longest wait of a broker for an answer to its own requests.
socket.listen.backlog.size  int  50  1..  accepted:backlog  read-only
    Connections that the kernel holds before they are accepted.
socket.receive.buffer.bytes  int  102400  any  accepted:kernel  read-only
    SO_RCVBUF of accepted sockets; -1 for the system's own.
socket.send.buffer.bytes  int  204800  any  honoured  read-only
    SO_SNDBUF of accepted sockets; -1 for the system's own. Apache Kafka's default is 102400.
socket.request.max.bytes  int  104857600  1..  honoured  read-only
    Largest request; a larger one closes the connection.
socket.connection.setup.timeout.ms  long  10000  any  accepted:peer-connection  read-only
    First wait for a connection that this node opens.
socket.connection.setup.timeout.max.ms  long  30000  any  accepted:peer-connection  read-only
    Longest wait for a connection that this node opens.
connections.max.idle.ms  long  600000  any  honoured  read-only
    Connections without a request for this long are closed.
connection.failed.authentication.delay.ms  int  100  0..  honoured  read-only
    Pause before a connection that failed to authenticate is closed.
max.connections  int  2147483647  0..  honoured  cluster-wide
    Most connections at a time.
max.connections.per.ip  int  2147483647  0..  honoured  cluster-wide
    Most connections of one address at a time.
max.connections.per.ip.overrides  string  ""  any  honoured  cluster-wide
    Other limits for single addresses: host:count.
max.connection.creation.rate  int  2147483647  0..  honoured  cluster-wide
    Most new connections a second.
max.request.partition.size.limit  int  2000  1..  honoured  read-only
    Most partitions in one DescribeTopicPartitions reply.
max.incremental.fetch.session.cache.slots  int  1000  0..  honoured  read-only
    Most incremental fetch sessions kept at a time.
fetch.max.bytes  int  57671680  1024..  honoured  read-only
    Most bytes in one fetch reply, whatever the client asks.
fetch.purgatory.purge.interval.requests  int  1000  any  accepted:purgatory  read-only
    Purge interval of waiting fetch requests.
producer.purgatory.purge.interval.requests  int  1000  any  accepted:purgatory  read-only
    Purge interval of waiting produce requests.
delete.records.purgatory.purge.interval.requests  int  1  any  accepted:purgatory  read-only
    Purge interval of waiting DeleteRecords requests.
share.fetch.purgatory.purge.interval.requests  int  1000  any  accepted:purgatory  read-only
    Purge interval of waiting ShareFetch requests.
create.topic.policy.class.name  class  null  any  refused:plugin  read-only
    Class that may veto new topics.
alter.config.policy.class.name  class  null  any  refused:plugin  read-only
    Class that may veto changes of configuration.
config.providers  list  []  list  refused:plugin  cluster-wide
    Classes that replace variables in configuration values.
metric.reporters  list  org.apache.kafka.common.metrics.JmxReporter  list  refused:plugin  cluster-wide
    Classes that report metrics.
metrics.num.samples  int  2  1..  accepted:metrics  read-only
    Samples kept for each metric.
metrics.recording.level  string  INFO  any  accepted:metrics  read-only
    Detail of metrics: INFO, DEBUG or TRACE.
metrics.sample.window.ms  long  30000  1..  accepted:metrics  read-only
    Length of one metrics sample.
kafka.metrics.reporters  list  []  list  refused:plugin  read-only
    Classes that report metrics of the older library.
kafka.metrics.polling.interval.secs  int  10  1..  accepted:metrics  read-only
    Polling interval of kafka.metrics.reporters.
telemetry.max.bytes  int  1048576  1..  honoured  read-only
    Largest push of client metrics that is announced to clients.
"""
OWN_ROWS = """
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
moldau.console  boolean  false  any  honoured  read-only
    Whether a broker serves the console, pages about the cluster for a browser, at moldau.http.listener.
moldau.console.hosts  list  []  list  honoured  read-only
    Further host names by which browsers reach the console, such as that of a proxy; other names are refused.
moldau.console.masks  list  []  list  honoured  read-only
    Parts of records that the console does not show: TOPICS:PART or TOPICS:PART.FIELD, such as orders*:value.card.
moldau.console.name  string  null  any  honoured  read-only
    The name of the cluster in the head and the title of each page of the console; its id if unset.
moldau.console.schema.registry  password  null  any  honoured  read-only
    The URL of a schema registry, by which the console decodes Avro and Protobuf: http://user:password@host:8081.
moldau.console.writes  boolean  false  any  honoured  read-only
    Whether users of the console may change topics, offsets and hanging transactions, each as far as the ACLs allow it.
moldau.cores  int  1  1..256  honoured  read-only
    Broker processes that moldau serve runs on this machine, each on one core: docs/cores.md.
moldau.emulated.release  string  null  one-of:2.4,2.5,2.6,2.7,2.8,3.0,3.1,3.2,3.3,3.4,3.5,3.6,3.7,3.8,3.9,4.0,4.1,4.2  honoured  read-only
    The release of Apache Kafka whose API versions a single node offers, for tests of clients; all where it is not set.
moldau.erase.enable  boolean  false  any  honoured  cluster-wide
    Whether a leader takes the orders of moldau erase; they also need DELETE on the topic and ALTER on the cluster.
moldau.group.heartbeat.wait.max.ms  int  3000  0..  honoured  read-only
    How long a heartbeat in a stable classic group waits for a rebalance to begin, of clients that allow it; 0: not.
moldau.group.waiting.heartbeat.interval.ms  int  500  1..  honoured  read-only
    Heartbeat interval of members of consumer, share and Streams groups that wait, if that of the group is longer.
moldau.http.listener  string  null  any  honoured  read-only
    Where metrics and health are served over HTTP, such as http://127.0.0.1:9464; nowhere where it is not set.
moldau.log.format  string  text  one-of:text,json  honoured  read-only
    How the node's own log is written to standard error: lines for people, or one JSON object a line.
moldau.opentelemetry.endpoint  string  null  any  honoured  read-only
    Where metrics, and traces of slow requests, are sent over OTLP/HTTP, such as http://127.0.0.1:4318; nowhere if unset.
moldau.opentelemetry.interval.ms  int  60000  1000..  honoured  read-only
    The time between two exports of the metrics by OpenTelemetry.
moldau.queued.max.reply.bytes  long  67108864  any  honoured  read-only
    Bytes of replies that have not left, over all connections, above which fetches copy one batch each; -1 for no limit.
moldau.metrics.login  boolean  true  any  honoured  read-only
    Whether /metrics asks for a login where the console does; the user needs DESCRIBE on the cluster.
moldau.metadata.loss.accept  boolean  false  any  honoured  read-only
    Whether a node whose metadata log is damaged starts without what it has lost; for one start.
moldau.metrics.lag.groups  list  *  list  honoured  read-only
    The groups whose lag is on /metrics: names, with * and ? as wildcards.
moldau.metrics.lag.partitions.max  int  2000  0..  honoured  read-only
    Most partitions of groups with a lag of their own on /metrics; groups beyond have the lag of the group.
moldau.metrics.series.max  int  1000  0..  honoured  read-only
    Most topics, partitions, clients and groups that have metrics of their own; those beyond are counted together.
moldau.oauthbearer.allowed.urls  list  []  list  honoured  read-only
    URLs that OAUTHBEARER may fetch keys and tokens from; a Java property of Apache Kafka names them.
moldau.open.files.max  int  -1  -1..  honoured  read-only
    Most files that segments keep open between uses; -1 is half of what the process may have open, 0 means no bound.
moldau.replicas.share.rack  boolean  true  any  honoured  read-only
    Whether a partition may have two replicas in one rack; false with moldau.cores, whose racks are machines.
moldau.slow.request.ms  long  1000  -1..  honoured  cluster-wide
    The time from which on the log has a line about a request with its stages: docs/latency.md; -1 for no lines.
moldau.tiered.compaction.bytes.per.pass  long  1073741824  1..  honoured  cluster-wide
    Bytes of remote segments of one compacted partition that one pass of the log cleaner reads; it cleans at least one.
moldau.tiered.superseded.retention.ms  long  600000  0..  honoured  cluster-wide
    How long a remote segment stays after a cleaned one took its place, for readers that still read it.
moldau.tiered.storage  string  null  non-empty  honoured  read-only
    Where segments are stored remotely: s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, or an absolute path.
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
"""  # noqa: E501 - the releases stand in one line
"""The settings of this broker that Apache Kafka does not have."""
