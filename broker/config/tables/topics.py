"""Settings of topics, replication, quotas and tiered storage; settings of the log."""

from __future__ import annotations

ROWS = """
auto.create.topics.enable  boolean  true  any  honoured  read-only
    Whether asking for an unknown topic creates it.
delete.topic.enable  boolean  true  any  honoured  read-only
    Whether topics may be deleted.
num.partitions  int  1  1..  honoured  read-only
    Partitions of a topic that is created without a count.
default.replication.factor  int  1  any  honoured  read-only
    Replicas of a topic that is created without a count.
min.insync.replicas  int  1  1..  honoured  cluster-wide
    Replicas that must have a record before acks=all is answered.
unclean.leader.election.enable  boolean  false  any  honoured  cluster-wide
    Whether a replica that is not in sync may lead when no other is left.
unclean.leader.election.interval.ms  long  300000  1..  honoured  read-only internal
    Interval of the search for partitions to elect uncleanly.
auto.leader.rebalance.enable  boolean  true  any  honoured  read-only
    Whether leaders move back to preferred replicas by themselves.
leader.imbalance.check.interval.seconds  long  300  1..  honoured  read-only
    Interval of that movement.
replica.lag.time.max.ms  long  30000  any  honoured  read-only
    Lag after which a replica leaves the in-sync set.
replica.socket.timeout.ms  int  30000  any  honoured  read-only
    Socket timeout of a fetching replica.
replica.socket.receive.buffer.bytes  int  65536  any  accepted:kernel  read-only
    Socket buffer of a fetching replica.
replica.fetch.max.bytes  int  1048576  0..  honoured  read-only
    Bytes a partition that a replica fetches at a time.
replica.fetch.response.max.bytes  int  10485760  0..  honoured  read-only
    Bytes in all that a replica fetches at a time.
replica.fetch.wait.max.ms  int  500  any  honoured  read-only
    Longest wait of a replica's fetch.
replica.fetch.min.bytes  int  1  any  honoured  read-only
    Bytes for which a replica's fetch waits.
replica.fetch.backoff.ms  int  1000  0..  honoured  read-only
    Pause of a replica after a failed fetch.
replica.high.watermark.checkpoint.interval.ms  long  5000  any  honoured  read-only
    Interval between writes of the high watermark checkpoint.
replica.selector.class  string  null  any  honoured  read-only
    What picks the replica a consumer reads from: Apache Kafka's RackAwareReplicaSelector or LeaderSelector, no other.
num.replica.fetchers  int  1  1..  accepted:one-fetcher  cluster-wide
    Fetching threads for each source broker.
follower.fetch.last.tiered.offset.enable  boolean  false  any  honoured  cluster-wide
    Whether an empty follower starts behind what is stored remotely.
quota.window.num  int  11  1..  honoured  read-only
    Samples of client quotas.
quota.window.size.seconds  int  1  1..  honoured  read-only
    Length of a sample of client quotas.
replication.quota.window.num  int  11  1..  honoured  read-only
    Samples of replication quotas.
replication.quota.window.size.seconds  int  1  1..  honoured  read-only
    Length of a sample of replication quotas.
alter.log.dirs.replication.quota.window.num  int  11  1..  accepted:move-directories  read-only
    Samples of quotas for moves between directories.
alter.log.dirs.replication.quota.window.size.seconds  int  1  1..  accepted:move-directories  read-only
    Length of a sample of quotas for moves between directories.
controller.quota.window.num  int  11  1..  honoured  read-only
    Samples of quotas of controller changes.
controller.quota.window.size.seconds  int  1  1..  honoured  read-only
    Length of a sample of quotas of controller changes.
client.quota.callback.class  class  null  any  refused:plugin  read-only
    Class that decides client quotas.
remote.log.storage.system.enable  boolean  false  any  honoured  read-only
    Whether segments may be stored remotely.
remote.log.storage.manager.class.name  string  null  non-empty  refused:tiered-class  read-only
    Class that stores segments remotely.
remote.log.storage.manager.class.path  string  null  any  accepted:tiered  read-only
    Class path of that class.
remote.log.storage.manager.impl.prefix  string  rsm.config.  non-empty  accepted:tiered  read-only
    Prefix of the settings handed to that class.
remote.log.metadata.manager.class.name  string  \
    org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager  \
    non-empty  refused:tiered-class  read-only
    Class that keeps track of remote segments.
remote.log.metadata.manager.class.path  string  null  any  accepted:tiered  read-only
    Class path of that class.
remote.log.metadata.manager.impl.prefix  string  rlmm.config.  non-empty  accepted:tiered  read-only
    Prefix of the settings handed to that class.
remote.log.metadata.manager.listener.name  string  null  non-empty  accepted:tiered  read-only
    Listener over which that class reaches the brokers.
remote.log.metadata.custom.metadata.max.bytes  int  128  0..  accepted:tiered  read-only
    Most bytes of custom metadata of a remote segment.
remote.log.index.file.cache.total.size.bytes  long  1073741824  1..  honoured  cluster-wide
    Disk space for indexes of remote segments.
remote.log.index.file.cache.ttl.ms  long  900000  -1..  accepted:tiered  read-only internal
    How long an unused index of a remote segment is kept.
remote.log.manager.thread.pool.size  int  2  1..  accepted:tiered  read-only
    Threads that follow remote segments.
remote.log.manager.copier.thread.pool.size  int  10  1..  honoured  cluster-wide
    Threads that copy segments away.
remote.log.manager.expiration.thread.pool.size  int  10  1..  honoured  cluster-wide
    Threads that delete remote segments.
remote.log.manager.follower.thread.pool.size  int  2  1..  accepted:tiered  cluster-wide
    Threads that follow remote segments on followers.
remote.log.manager.task.interval.ms  long  30000  1..  honoured  read-only
    Interval of copying and deleting.
remote.log.manager.task.retry.backoff.ms  long  500  1..  honoured  read-only internal
    First pause after a failed attempt.
remote.log.manager.task.retry.backoff.max.ms  long  30000  1..  honoured  read-only internal
    Longest pause after failed attempts.
remote.log.manager.task.retry.jitter  double  0.2  0..0.5  honoured  read-only internal
    Random part of that pause.
remote.log.manager.copy.max.bytes.per.second  long  9223372036854775807  1..  honoured  cluster-wide
    Most bytes copied away in a second.
remote.log.manager.copy.quota.window.num  int  11  1..  honoured  read-only
    Samples of the copy quota.
remote.log.manager.copy.quota.window.size.seconds  int  1  1..  honoured  read-only
    Length of a sample of the copy quota.
remote.log.manager.fetch.max.bytes.per.second  long  9223372036854775807  1..  honoured  cluster-wide
    Most bytes read from remote segments in a second.
remote.log.manager.fetch.quota.window.num  int  11  1..  honoured  read-only
    Samples of the remote read quota.
remote.log.manager.fetch.quota.window.size.seconds  int  1  1..  honoured  read-only
    Length of a sample of the remote read quota.
remote.log.reader.threads  int  10  1..  honoured  cluster-wide
    Threads that read remote segments.
remote.log.reader.max.pending.tasks  int  100  1..  honoured  read-only
    Remote reads that may wait.
remote.fetch.max.wait.ms  int  500  1..  honoured  cluster-wide
    Longest wait for a remote read.
remote.list.offsets.request.timeout.ms  long  30000  1..  honoured  cluster-wide
    Longest wait for an offset search in remote segments.
"""
LOG_ROWS = """
log.dir  list  /tmp/kafka-logs  non-empty-list  honoured  read-only
    Directory of partition data where log.dirs is not set.
log.dirs  list  null  non-empty-list  honoured  read-only
    Directories of partition data.
cordoned.log.dirs  list  []  list  refused:cordon  per-broker
    Directories that take no new partitions.
log.dir.failure.timeout.ms  long  30000  1..  accepted:failed-directory  read-only
    How long a failed directory may stay unreported before the broker stops.
log.segment.bytes  int  1073741824  1048576..  honoured  cluster-wide
    A segment that reaches this size is closed.
log.segment.delete.delay.ms  long  60000  0..  honoured  cluster-wide
    Time between the renaming of a deleted file and its removal.
log.roll.ms  long  null  any  honoured  cluster-wide
    Age at which a segment is closed, in ms; before log.roll.hours.
log.roll.hours  int  168  1..  honoured  read-only
    Age at which a segment is closed, in hours.
log.roll.jitter.ms  long  null  any  honoured  cluster-wide
    Random part taken off the rolling age, in ms; before log.roll.jitter.hours.
log.roll.jitter.hours  int  0  0..  honoured  read-only
    Random part taken off the rolling age, in hours.
log.retention.ms  long  null  any  honoured  cluster-wide
    How long records are kept, in ms; -1 for no limit; before minutes and hours.
log.retention.minutes  int  null  any  honoured  read-only
    How long records are kept, in minutes; before log.retention.hours.
log.retention.hours  int  168  any  honoured  read-only
    How long records are kept, in hours.
log.retention.bytes  long  -1  any  honoured  cluster-wide
    Size of a partition above which old segments are deleted; -1 for no limit.
log.retention.check.interval.ms  long  300000  1..  honoured  read-only
    Interval between searches for segments to delete.
log.initial.task.delay.ms  long  30000  0..  honoured  read-only internal
    Time after start before the first background task of the log, for tests.
log.cleanup.policy  list  delete  list:compact,delete  honoured  cluster-wide
    What happens to old segments: delete, compact, both, or nothing if empty.
log.index.interval.bytes  int  4096  0..  honoured  cluster-wide
    Bytes of log between two index entries.
log.index.size.max.bytes  int  10485760  4..  honoured  cluster-wide
    Largest index; a segment whose index is full is closed.
log.preallocate  boolean  false  any  accepted:preallocate  cluster-wide
    Whether a new segment is created in its full size.
log.flush.interval.messages  long  9223372036854775807  1..  honoured  cluster-wide
    Records in a partition after which it is flushed to disk.
log.flush.interval.ms  long  null  any  honoured  cluster-wide
    Longest time before a record is flushed to disk.
log.flush.scheduler.interval.ms  long  9223372036854775807  any  honoured  read-only
    Interval of the search for logs to flush; log.flush.interval.ms where that is not set.
log.flush.offset.checkpoint.interval.ms  int  60000  0..  accepted:checkpoints  read-only
    Interval between writes of the recovery point checkpoint.
log.flush.start.offset.checkpoint.interval.ms  int  60000  0..  accepted:checkpoints  read-only
    Interval between writes of the log start offset checkpoint.
log.message.timestamp.type  string  CreateTime  one-of:CreateTime,LogAppendTime  honoured  cluster-wide
    Whose time a record carries: the producer's or the broker's.
log.message.timestamp.before.max.ms  long  9223372036854775807  0..  honoured  cluster-wide
    How far a record's timestamp may lie in the past.
log.message.timestamp.after.max.ms  long  3600000  0..  honoured  cluster-wide
    How far a record's timestamp may lie in the future.
log.remote.copy.lag.bytes  long  -1  -1..  honoured  cluster-wide
    Bytes of newer records that let a segment be copied to remote storage; -1: local.retention.bytes of the topic.
log.remote.copy.lag.ms  long  0  -1..  honoured  cluster-wide
    Age at which a segment is copied to remote storage; 0 at once, -1: local.retention.ms of the topic.
log.local.retention.bytes  long  -2  -2..  honoured  cluster-wide
    Local size above which segments that are stored remotely are deleted; -2 for log.retention.bytes.
log.local.retention.ms  long  -2  -2..  honoured  cluster-wide
    How long segments that are stored remotely stay local; -2 for log.retention.ms.
log.cleaner.enable  boolean  true  any  honoured  read-only
    Whether compacted topics are cleaned.
log.cleaner.threads  int  1  0..  honoured  cluster-wide
    Threads that clean.
log.cleaner.backoff.ms  long  15000  0..  honoured  cluster-wide
    Pause of the cleaner when there is nothing to clean.
log.cleaner.dedupe.buffer.size  long  134217728  any  honoured  cluster-wide
    Memory for the table of keys.
log.cleaner.io.buffer.size  int  524288  0..  honoured  cluster-wide
    Memory for the cleaner's reads and writes.
log.cleaner.io.buffer.load.factor  double  0.9  any  honoured  cluster-wide
    How full the table of keys may be.
log.cleaner.io.max.bytes.per.second  double  1.7976931348623157E308  any  honoured  cluster-wide
    Most bytes that the cleaner reads and writes in a second.
log.cleaner.delete.retention.ms  long  86400000  0..  honoured  cluster-wide
    How long tombstones are kept in compacted topics.
log.cleaner.min.cleanable.ratio  double  0.5  0..1  honoured  cluster-wide
    Share of uncleaned data from which a log is cleaned.
log.cleaner.min.compaction.lag.ms  long  0  0..  honoured  cluster-wide
    Time in which a record is safe from compaction.
log.cleaner.max.compaction.lag.ms  long  9223372036854775807  1..  honoured  cluster-wide
    Time after which a record must have been compacted.
compression.type  string  producer  one-of:uncompressed,zstd,lz4,snappy,gzip,producer  honoured  cluster-wide
    Codec in which the broker stores batches; producer keeps what came.
compression.gzip.level  int  -1  1..9|-1  honoured  cluster-wide
    Level where the broker compresses with gzip.
compression.lz4.level  int  9  1..17  honoured  cluster-wide
    Level where the broker compresses with lz4.
compression.zstd.level  int  3  -131072..22  honoured  cluster-wide
    Level where the broker compresses with zstd.
max.decompressed.message.bytes  int  2147483639  1..2147483639  honoured  cluster-wide
    Largest record of a compressed batch, decompressed, as in Apache Kafka 4.4. See docs/limits.md for the default.
message.max.bytes  int  1048588  0..  honoured  cluster-wide
    Largest batch that is taken.
num.recovery.threads.per.data.dir  int  2  1..  honoured  cluster-wide
    Threads a directory for recovery at start and for the flush at a stop, as the file of settings has it.
num.replica.alter.log.dirs.threads  int  null  any  accepted:move-directories  read-only
    Threads that move replicas between directories.
producer.id.expiration.ms  int  86400000  1..  honoured  cluster-wide
    Time without a write after which a producer's state is forgotten.
producer.id.expiration.check.interval.ms  int  600000  1..  honoured  read-only internal
    Interval between searches for forgotten producers.
"""
"""Settings of the log: directories, segments, retention, flushing, compaction."""
