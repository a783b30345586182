"""Settings of groups, offsets and transactions."""

from __future__ import annotations

ROWS = """
group.min.session.timeout.ms  int  6000  any  honoured  read-only
    Shortest session timeout that a member may ask for.
group.max.session.timeout.ms  int  1800000  any  honoured  read-only
    Longest session timeout that a member may ask for.
group.initial.rebalance.delay.ms  int  3000  any  honoured  read-only
    How long an empty group waits for more members before its first rebalance.
group.max.size  int  2147483647  1..  honoured  read-only
    Most members of a group.
group.coordinator.rebalance.protocols  list  \
    classic,consumer,streams  \
    non-empty-list:consumer,classic,share,streams  honoured  read-only
    Protocols for groups that are enabled, if the level of their feature is above 0 too; deprecated.
group.coordinator.threads  int  4  1..  accepted:threads  read-only
    Threads of the group coordinator.
group.coordinator.background.threads  int  2  1..  accepted:threads  read-only
    Threads of the group coordinator for background work.
group.coordinator.append.linger.ms  int  -1  -1..  accepted:linger  read-only
    How long the coordinator collects writes; -1 to decide by load.
group.coordinator.cached.buffer.max.bytes  int  1048588  524288..  accepted:linger  cluster-wide
    Largest buffer that the coordinator keeps for reuse.
offset.metadata.max.bytes  int  4096  any  honoured  read-only
    Largest metadata string of a committed offset.
offsets.commit.timeout.ms  int  5000  1..  honoured  read-only
    Longest wait for the replicas of a commit.
offsets.load.buffer.size  int  5242880  1..  honoured  read-only
    Bytes read at a time while offsets are loaded.
offsets.retention.minutes  int  10080  1..  honoured  read-only
    How long offsets are kept after a group has become empty.
offsets.retention.check.interval.ms  long  600000  1..  honoured  read-only
    Interval between searches for expired offsets.
offsets.topic.num.partitions  int  50  1..  honoured  read-only
    Partitions of __consumer_offsets.
offsets.topic.replication.factor  short  3  1..  honoured  read-only
    Replicas of __consumer_offsets.
offsets.topic.segment.bytes  int  104857600  1..  honoured  read-only
    Segment size of __consumer_offsets.
offsets.topic.compression.codec  int  0  any  honoured  read-only
    Codec of __consumer_offsets, by number.
group.consumer.assignors  list  uniform,range  non-empty-list  honoured  read-only
    Assignors on the server for consumer groups.
group.consumer.migration.policy  string  \
    bidirectional  \
    any-case:DISABLED,DOWNGRADE,UPGRADE,BIDIRECTIONAL  honoured  read-only
    Whether a group may change between classic and consumer protocol.
group.consumer.max.size  int  2147483647  1..  honoured  read-only
    Most members of a consumer group.
group.consumer.session.timeout.ms  int  45000  1..  honoured  read-only
    Session timeout of consumer groups.
group.consumer.min.session.timeout.ms  int  45000  1..  honoured  read-only
    Shortest session timeout of a consumer group.
group.consumer.max.session.timeout.ms  int  60000  1..  honoured  read-only
    Longest session timeout of a consumer group.
group.consumer.heartbeat.interval.ms  int  5000  1..  honoured  read-only
    Heartbeat interval of consumer groups.
group.consumer.min.heartbeat.interval.ms  int  5000  1..  honoured  read-only
    Shortest heartbeat interval of a consumer group.
group.consumer.max.heartbeat.interval.ms  int  15000  1..  honoured  read-only
    Longest heartbeat interval of a consumer group.
group.consumer.assignment.interval.ms  int  1000  0..  honoured  cluster-wide
    Least time between two assignments of a consumer group.
group.consumer.min.assignment.interval.ms  int  0  0..  honoured  read-only
    Shortest assignment interval of a consumer group.
group.consumer.max.assignment.interval.ms  int  15000  0..  honoured  read-only
    Longest assignment interval of a consumer group.
group.consumer.regex.refresh.interval.ms  int  600000  10000..  honoured  read-only internal
    Interval at which subscriptions by pattern are matched again.
group.share.assignors  list  simple  non-empty-list  accepted:share  read-only
    Assignors of share groups.
group.share.max.size  int  200  1..1000  honoured  read-only
    Most members of a share group.
group.share.max.share.sessions  int  2000  1..  honoured  read-only
    Most share sessions.
group.share.persister.class.name  string  \
    org.apache.kafka.server.share.persister.DefaultStatePersister  \
    any  refused:plugin  read-only internal
    Class that keeps the state of share groups.
group.share.initialize.retry.interval.ms  int  30000  1..  honoured  read-only internal
    Interval at which share state is initialized again.
group.share.dlq.manager.class.name  string  \
    org.apache.kafka.server.share.dlq.DefaultShareGroupDLQManager  \
    any  refused:plugin  read-only internal
    Class that writes dead letters.
errors.deadletterqueue.auto.create.topics.enable  boolean  false  any  honoured  cluster-wide
    Whether the broker creates the dead-letter queue that a share group names, as in Apache Kafka 4.4.
errors.deadletterqueue.topic.name.prefix  string  dlq.  any  honoured  cluster-wide
    Prefix of the names of dead-letter queues, as in Apache Kafka 4.4; empty for no restriction.
group.share.session.timeout.ms  int  45000  1..  honoured  read-only
    Session timeout of share groups.
group.share.min.session.timeout.ms  int  45000  1..  honoured  read-only
    Shortest session timeout of a share group.
group.share.max.session.timeout.ms  int  60000  1..  honoured  read-only
    Longest session timeout of a share group.
group.share.heartbeat.interval.ms  int  5000  1..  honoured  read-only
    Heartbeat interval of share groups.
group.share.min.heartbeat.interval.ms  int  5000  1..  honoured  read-only
    Shortest heartbeat interval of a share group.
group.share.max.heartbeat.interval.ms  int  15000  1..  honoured  read-only
    Longest heartbeat interval of a share group.
group.share.assignment.interval.ms  int  1000  0..  honoured  cluster-wide
    Least time between two assignments of a share group.
group.share.min.assignment.interval.ms  int  0  0..  honoured  read-only
    Shortest assignment interval of a share group.
group.share.max.assignment.interval.ms  int  15000  0..  honoured  read-only
    Longest assignment interval of a share group.
group.share.delivery.count.limit  int  5  2..10  honoured  read-only
    How often a record is delivered at most.
group.share.min.delivery.count.limit  int  2  2..5  honoured  read-only
    Lowest delivery limit of a share group.
group.share.max.delivery.count.limit  int  10  5..25  honoured  read-only
    Highest delivery limit of a share group.
group.share.record.lock.duration.ms  int  30000  1000..3600000  honoured  read-only
    How long a consumer holds a record.
group.share.min.record.lock.duration.ms  int  15000  1000..30000  honoured  read-only
    Shortest hold of a share group.
group.share.max.record.lock.duration.ms  int  60000  30000..3600000  honoured  read-only
    Longest hold of a share group.
group.share.partition.max.record.locks  int  2000  100..10000  honoured  read-only
    Most held records a partition.
group.share.min.partition.max.record.locks  int  100  100..2000  honoured  read-only
    Lowest such limit of a share group.
group.share.max.partition.max.record.locks  int  4000  2000..10000  honoured  read-only
    Highest such limit of a share group.
share.coordinator.state.topic.num.partitions  int  50  1..  honoured  read-only
    Partitions of the share state topic.
share.coordinator.state.topic.replication.factor  short  3  1..  honoured  read-only
    Replicas of the share state topic.
share.coordinator.state.topic.min.isr  short  2  1..  honoured  read-only
    In-sync replicas that the share state topic needs.
share.coordinator.state.topic.segment.bytes  int  104857600  1..  honoured  read-only
    Segment size of the share state topic.
share.coordinator.state.topic.compression.codec  int  0  any  honoured  read-only
    Codec of the share state topic, by number.
share.coordinator.state.topic.prune.interval.ms  int  300000  1..  honoured  read-only internal
    Interval at which the share state topic is pruned.
share.coordinator.cold.partition.snapshot.interval.ms  int  300000  1..  honoured  read-only internal
    Interval of snapshots of idle share partitions.
share.coordinator.snapshot.update.records.per.snapshot  int  500  0..500  honoured  read-only
    Updates between two snapshots of a share partition.
share.coordinator.load.buffer.size  int  5242880  1..  honoured  read-only
    Bytes read at a time while share state is loaded.
share.coordinator.write.timeout.ms  int  5000  1..  honoured  read-only
    Longest wait for a write of share state.
share.coordinator.append.linger.ms  int  -1  -1..  accepted:linger  read-only
    How long the share coordinator collects writes.
share.coordinator.threads  int  1  1..  accepted:threads  read-only
    Threads of the share coordinator.
share.coordinator.cached.buffer.max.bytes  int  1048588  524288..  accepted:linger  cluster-wide
    Largest buffer that the share coordinator keeps for reuse.
group.streams.assignors  list  sticky  non-empty-list  accepted:streams  read-only
    Assignors on the server for streams groups, as in Apache Kafka 4.4.
group.streams.rack.aware.assignment.tags  list  []  any  refused:rack-tags  read-only
    Tags of clients over which standby tasks are spread.
group.streams.topology.description.plugin.class  class  null  any  refused:plugin  read-only
    Class that stores descriptions of topologies.
group.streams.acceptable.recovery.lag  long  10000  0..  accepted:warm-up  read-only internal
    Lag at which a warm-up task counts as caught up.
group.streams.num.warmup.replicas  int  2  0..  accepted:warm-up  read-only internal
    Most warm-up tasks of a streams group.
group.streams.max.warmup.replicas  int  20  0..  accepted:warm-up  read-only internal
    Largest number of warm-up tasks that a streams group may set.
group.streams.task.offset.interval.ms  int  60000  1..  accepted:warm-up  read-only internal
    Interval at which members report the offsets of their tasks.
group.streams.min.task.offset.interval.ms  int  15000  1..  accepted:warm-up  read-only internal
    Shortest interval that a streams group may set.
group.consumer.assignor.offload.enable  boolean  true  any  accepted:threads  cluster-wide internal
    Whether assignments of consumer groups are computed in a thread of their own.
group.share.assignor.offload.enable  boolean  true  any  accepted:threads  cluster-wide internal
    Whether assignments of share groups are computed in a thread of their own.
group.streams.assignor.offload.enable  boolean  true  any  accepted:threads  cluster-wide internal
    Whether assignments of streams groups are computed in a thread of their own.
group.streams.max.size  int  2147483647  1..  honoured  read-only
    Most members of a streams group.
group.streams.session.timeout.ms  int  45000  1..  honoured  read-only
    Session timeout of streams groups.
group.streams.min.session.timeout.ms  int  45000  1..  honoured  read-only
    Shortest session timeout of a streams group.
group.streams.max.session.timeout.ms  int  60000  1..  honoured  read-only
    Longest session timeout of a streams group.
group.streams.heartbeat.interval.ms  int  5000  1..  honoured  read-only
    Heartbeat interval of streams groups.
group.streams.min.heartbeat.interval.ms  int  5000  1..  honoured  read-only
    Shortest heartbeat interval of a streams group.
group.streams.max.heartbeat.interval.ms  int  15000  1..  honoured  read-only
    Longest heartbeat interval of a streams group.
group.streams.assignment.interval.ms  int  1000  0..  honoured  cluster-wide
    Least time between two assignments of a streams group.
group.streams.min.assignment.interval.ms  int  0  0..  honoured  read-only
    Shortest assignment interval of a streams group.
group.streams.max.assignment.interval.ms  int  15000  0..  honoured  read-only
    Longest assignment interval of a streams group.
group.streams.num.standby.replicas  int  0  0..  honoured  read-only
    Standby tasks of streams groups.
group.streams.max.standby.replicas  int  2  0..  honoured  read-only
    Most standby tasks of a streams group.
group.streams.initial.rebalance.delay.ms  int  3000  0..  honoured  read-only
    How long an empty streams group waits before its first rebalance.
transaction.max.timeout.ms  int  900000  1..  honoured  read-only
    Longest transaction timeout that a producer may ask for.
transaction.state.log.num.partitions  int  50  1..  honoured  read-only
    Partitions of __transaction_state.
transaction.state.log.replication.factor  short  3  1..  honoured  read-only
    Replicas of __transaction_state.
transaction.state.log.min.isr  int  2  1..  honoured  read-only
    In-sync replicas that __transaction_state needs.
transaction.state.log.segment.bytes  int  104857600  1..  honoured  read-only
    Segment size of __transaction_state.
transaction.state.log.load.buffer.size  int  5242880  1..  honoured  read-only
    Bytes read at a time while transactions are loaded.
transactional.id.expiration.ms  int  604800000  1..  honoured  read-only
    Idle time after which a transactional id is forgotten.
transaction.abort.timed.out.transaction.cleanup.interval.ms  int  10000  1..  honoured  read-only
    Interval of the search for transactions that have timed out.
transaction.remove.expired.transaction.cleanup.interval.ms  int  3600000  1..  honoured  read-only
    Interval of the search for expired transactional ids.
transaction.partition.verification.enable  boolean  true  any  honoured  cluster-wide
    Whether a partition checks that a transaction has begun.
transaction.two.phase.commit.enable  boolean  false  any  accepted:two-phase-commit  read-only
    Whether producers may take part in two-phase commit.
add.partitions.to.txn.retry.backoff.ms  int  20  1..  honoured  read-only
    First pause before a partition is added to a transaction again.
add.partitions.to.txn.retry.backoff.max.ms  int  100  0..  honoured  read-only
    Longest pause before a partition is added to a transaction again.
"""
