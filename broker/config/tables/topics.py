"""Settings of topics, replication, quotas and tiered storage."""

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
