"""Settings of topics, groups and client metrics subscriptions, and broker settings that exist only at run time."""

from __future__ import annotations

TOPIC_ROWS = """
cleanup.policy  list  delete  list:compact,delete  honoured  log.cleanup.policy
    What happens to old segments: delete, compact, both, or nothing if empty.
compression.gzip.level  int  -1  1..9|-1  honoured  compression.gzip.level
    Level where the broker compresses with gzip.
compression.lz4.level  int  9  1..17  honoured  compression.lz4.level
    Level where the broker compresses with lz4.
compression.type  string  producer  one-of:uncompressed,zstd,lz4,snappy,gzip,producer  honoured  compression.type
    Codec in which the broker stores batches; producer keeps what came.
compression.zstd.level  int  3  -131072..22  honoured  compression.zstd.level
    Level where the broker compresses with zstd.
delete.retention.ms  long  86400000  0..  honoured  log.cleaner.delete.retention.ms
    How long tombstones are kept in a compacted topic.
errors.deadletterqueue.group.enable  boolean  false  any  honoured  -
    Whether share groups may use this topic as their dead-letter queue, as in Apache Kafka 4.4.
file.delete.delay.ms  long  60000  0..  honoured  log.segment.delete.delay.ms
    Time between the renaming of a deleted file and its removal.
flush.messages  long  9223372036854775807  1..  honoured  log.flush.interval.messages
    Records in a partition after which it is flushed to disk.
flush.ms  long  9223372036854775807  0..  honoured  log.flush.interval.ms,log.flush.scheduler.interval.ms
    Longest time before a record is flushed to disk.
follower.replication.throttled.replicas  list  []  replicas  honoured  -
    Replicas whose fetching is throttled: partition:broker, or *.
index.interval.bytes  int  4096  0..  honoured  log.index.interval.bytes
    Bytes of log between two index entries.
internal.segment.bytes  int  null  any  honoured  - internal
    Segment size below the public minimum, for tests.
leader.replication.throttled.replicas  list  []  replicas  honoured  -
    Replicas whose serving is throttled: partition:broker, or *.
local.retention.bytes  long  -2  -2..  honoured  log.local.retention.bytes
    Local size above which segments that are stored remotely are deleted; -2 for retention.bytes.
local.retention.ms  long  -2  -2..  honoured  log.local.retention.ms
    How long segments that are stored remotely stay local; -2 for retention.ms.
max.compaction.lag.ms  long  9223372036854775807  1..  honoured  log.cleaner.max.compaction.lag.ms
    Time after which a record must have been compacted.
max.decompressed.message.bytes  int  2147483639  1..2147483639  honoured  max.decompressed.message.bytes
    Largest record of a compressed batch, decompressed: in what is taken, compaction and searches by time.
max.message.bytes  int  1048588  0..  honoured  message.max.bytes
    Largest batch that is taken.
message.timestamp.after.max.ms  long  3600000  0..  honoured  log.message.timestamp.after.max.ms
    How far a record's timestamp may lie in the future.
message.timestamp.before.max.ms  long  9223372036854775807  0..  honoured  log.message.timestamp.before.max.ms
    How far a record's timestamp may lie in the past.
message.timestamp.type  string  CreateTime  one-of:CreateTime,LogAppendTime  honoured  log.message.timestamp.type
    Whose time a record carries: the producer's or the broker's.
min.cleanable.dirty.ratio  double  0.5  0..1  honoured  log.cleaner.min.cleanable.ratio
    Share of uncleaned data from which the log is cleaned.
min.compaction.lag.ms  long  0  0..  honoured  log.cleaner.min.compaction.lag.ms
    Time in which a record is safe from compaction.
min.insync.replicas  int  1  1..  honoured  min.insync.replicas
    Replicas that must have a record before acks=all is answered.
preallocate  boolean  false  any  accepted:preallocate  log.preallocate
    Whether a new segment is created in its full size.
remote.copy.lag.bytes  long  -1  -1..  honoured  log.remote.copy.lag.bytes
    Bytes of newer records that let a segment be copied remotely, as in Apache Kafka 4.4; -1: local.retention.bytes.
remote.copy.lag.ms  long  0  -1..  honoured  log.remote.copy.lag.ms
    Age at which a segment is copied to remote storage, as in Apache Kafka 4.4; 0 at once, -1: local.retention.ms.
remote.log.copy.disable  boolean  false  any  honoured  -
    Whether segments are no longer copied away.
remote.log.delete.on.disable  boolean  false  any  honoured  -
    Whether remote segments go when tiered storage is switched off.
remote.storage.enable  boolean  false  any  honoured  -
    Whether segments are stored remotely.
retention.bytes  long  -1  any  honoured  log.retention.bytes
    Size of a partition above which old segments are deleted; -1 for no limit.
retention.ms  long  604800000  -1..  honoured  log.retention.ms,log.retention.minutes,log.retention.hours
    How long records are kept; -1 for no limit.
segment.bytes  int  1073741824  1048576..  honoured  log.segment.bytes
    A segment that reaches this size is closed.
segment.index.bytes  int  10485760  4..  honoured  log.index.size.max.bytes
    Largest index; a segment whose index is full is closed.
segment.jitter.ms  long  0  0..  honoured  log.roll.jitter.ms,log.roll.jitter.hours
    Random part taken off segment.ms.
segment.ms  long  604800000  1..  honoured  log.roll.ms,log.roll.hours
    Age at which a segment is closed.
unclean.leader.election.enable  boolean  false  any  honoured  unclean.leader.election.enable
    Whether a replica that is not in sync may lead when no other is left.
"""

GROUP_ROWS = """
consumer.assignor.offload.enable  boolean  true  any  accepted:threads  group.consumer.assignor.offload.enable internal
    Whether assignments of this consumer group are computed in a thread of their own.
consumer.assignment.interval.ms  int  1000  0..  honoured  group.consumer.assignment.interval.ms
    Least time between two assignments of this consumer group.
consumer.heartbeat.interval.ms  int  5000  1..  honoured  group.consumer.heartbeat.interval.ms
    Heartbeat interval of this consumer group.
consumer.session.timeout.ms  int  45000  1..  honoured  group.consumer.session.timeout.ms
    Session timeout of this consumer group.
errors.deadletterqueue.copy.record.enable  boolean  false  any  honoured  -
    Whether the dead letters of this share group hold key and value of the records, as in Apache Kafka 4.4.
errors.deadletterqueue.topic.name  string  ""  any  honoured  -
    Topic for the dead letters of this share group, as in Apache Kafka 4.4; empty for none.
share.assignment.interval.ms  int  1000  0..  honoured  group.share.assignment.interval.ms
    Least time between two assignments of this share group.
share.assignor.offload.enable  boolean  true  any  accepted:threads  group.share.assignor.offload.enable internal
    Whether assignments of this share group are computed in a thread of their own.
share.auto.offset.reset  string  latest  offset-reset  honoured  -
    Where this share group begins: earliest, latest or by_duration:.
share.delivery.count.limit  int  5  2..  honoured  group.share.delivery.count.limit
    How often a record is delivered at most.
share.heartbeat.interval.ms  int  5000  1..  honoured  group.share.heartbeat.interval.ms
    Heartbeat interval of this share group.
share.isolation.level  string  read_uncommitted  one-of:read_committed,read_uncommitted  honoured  -
    Whether this share group sees uncommitted records.
share.partition.max.record.locks  int  2000  100..  honoured  group.share.partition.max.record.locks
    Most held records a partition.
share.record.lock.duration.ms  int  30000  1000..  honoured  group.share.record.lock.duration.ms
    How long a consumer holds a record.
share.renew.acknowledge.enable  boolean  true  any  honoured  -
    Whether a consumer may renew its hold of a record.
share.session.timeout.ms  int  45000  1..  honoured  group.share.session.timeout.ms
    Session timeout of this share group.
streams.acceptable.recovery.lag  long  10000  0..  accepted:warm-up  group.streams.acceptable.recovery.lag internal
    Lag at which a warm-up task of this group counts as caught up.
streams.assignor.name  string  null  any  honoured  -
    Assignor of this streams group, as in Apache Kafka 4.4.
streams.assignor.offload.enable  boolean  true  any  accepted:threads  group.streams.assignor.offload.enable internal
    Whether assignments of this streams group are computed in a thread of their own.
streams.num.warmup.replicas  int  2  0..  accepted:warm-up  group.streams.num.warmup.replicas internal
    Most warm-up tasks of this streams group.
streams.rack.aware.assignment.tags  list  []  any  refused:rack-tags  group.streams.rack.aware.assignment.tags
    Tags of clients over which the standby tasks of this group are spread.
streams.task.offset.interval.ms  int  60000  1..  accepted:warm-up  group.streams.task.offset.interval.ms internal
    Interval at which members of this group report the offsets of their tasks.
streams.assignment.interval.ms  int  1000  0..  honoured  group.streams.assignment.interval.ms
    Least time between two assignments of this streams group.
streams.heartbeat.interval.ms  int  5000  1..  honoured  group.streams.heartbeat.interval.ms
    Heartbeat interval of this streams group.
streams.initial.rebalance.delay.ms  int  3000  0..  honoured  group.streams.initial.rebalance.delay.ms
    How long this group waits, when empty, before its first rebalance.
streams.num.standby.replicas  int  0  0..  honoured  group.streams.num.standby.replicas
    Standby tasks of this streams group.
streams.session.timeout.ms  int  45000  1..  honoured  group.streams.session.timeout.ms
    Session timeout of this streams group.
"""

CLIENT_METRICS_ROWS = """
interval.ms  int  300000  any  honoured  -
    Interval at which clients push metrics.
match  list  []  list  honoured  -
    Clients that this subscription means: name=pattern.
metrics  list  []  list  honoured  -
    Prefixes of the metrics that are pushed; * for all.
"""

DYNAMIC_ONLY_ROWS = """
leader.replication.throttled.rate  long  9223372036854775807  0..  honoured  cluster-wide
    Most bytes a second that throttled leaders serve to replicas.
follower.replication.throttled.rate  long  9223372036854775807  0..  honoured  cluster-wide
    Most bytes a second that throttled followers fetch.
replica.alter.log.dirs.io.max.bytes.per.second  long  9223372036854775807  0..  accepted:move-directories  cluster-wide
    Most bytes a second that moves between directories copy.
"""
