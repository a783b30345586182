"""The catalogue rows of the metrics of groups, and of the records that share groups deliver, in the form of
`catalogue.py`.
"""

from __future__ import annotations

from typing import Final

GROUP_ROWS: Final = """
kafka_coordinator_group_groupmetadatamanager_numgroups  gauge  -
    kafka.coordinator.group:type=GroupMetadataManager,name=NumGroups
    Classic groups that this broker coordinates.
kafka_coordinator_group_groupmetadatamanager_numgroupsempty  gauge  -
    kafka.coordinator.group:type=GroupMetadataManager,name=NumGroupsEmpty
    Those without members.
kafka_coordinator_group_groupmetadatamanager_numgroupspreparingrebalance  gauge  -
    kafka.coordinator.group:type=GroupMetadataManager,name=NumGroupsPreparingRebalance
    Those that wait for their members to join.
kafka_coordinator_group_groupmetadatamanager_numgroupscompletingrebalance  gauge  -
    kafka.coordinator.group:type=GroupMetadataManager,name=NumGroupsCompletingRebalance
    Those that wait for their leader's assignment.
kafka_coordinator_group_groupmetadatamanager_numgroupsstable  gauge  -
    kafka.coordinator.group:type=GroupMetadataManager,name=NumGroupsStable
    Those in which every member has an assignment.
kafka_coordinator_group_groupmetadatamanager_numgroupsdead  gauge  -
    kafka.coordinator.group:type=GroupMetadataManager,name=NumGroupsDead
    Those on their way out; none stays so here.
kafka_coordinator_group_groupmetadatamanager_numoffsets  gauge  -
    kafka.coordinator.group:type=GroupMetadataManager,name=NumOffsets
    Committed offsets.
moldau_group_members  gauge  -
    -
    Members of all groups.
kafka_server_group_coordinator_metrics_group_completed_rebalance_count  counter  -
    kafka.server:type=group-coordinator-metrics,name=group-completed-rebalance-count
    Generations that began.
kafka_server_group_coordinator_metrics_group_count  gauge  protocol
    kafka.server:type=group-coordinator-metrics,name=group-count
    Groups that this broker coordinates, by their kind.
kafka_server_group_coordinator_metrics_consumer_group_count  gauge  state
    kafka.server:type=group-coordinator-metrics,name=consumer-group-count
    Consumer groups by their state; none is Dead for long enough to be seen.
kafka_server_group_coordinator_metrics_consumer_group_rebalance_count  counter  -
    kafka.server:type=group-coordinator-metrics,name=consumer-group-rebalance-count
    New epochs of consumer groups.
kafka_server_group_coordinator_metrics_share_group_count  gauge  state
    kafka.server:type=group-coordinator-metrics,name=share-group-count
    Share groups by their state; none is Dead for long enough to be seen.
kafka_server_group_coordinator_metrics_share_group_rebalance_count  counter  -
    kafka.server:type=group-coordinator-metrics,name=share-group-rebalance-count
    New epochs of share groups.
kafka_server_group_coordinator_metrics_streams_group_count  gauge  state
    kafka.server:type=group-coordinator-metrics,name=streams-group-count
    Streams groups by their state; none is Dead for long enough to be seen.
kafka_server_group_coordinator_metrics_streams_group_rebalance_count  counter  -
    kafka.server:type=group-coordinator-metrics,name=streams-group-rebalance-count
    New epochs of Streams groups.
kafka_server_group_coordinator_metrics_offset_commit_count  counter  -
    kafka.server:type=group-coordinator-metrics,name=offset-commit-count
    Offsets written by commits.
kafka_server_brokertopicmetrics_totalsharefetchrequests_total  counter  -
    kafka.server:type=BrokerTopicMetrics,name=TotalShareFetchRequestsPerSec
    ShareFetch requests. Kafka counts each topic of a request.
kafka_server_brokertopicmetrics_failedsharefetchrequests_total  counter  -
    kafka.server:type=BrokerTopicMetrics,name=FailedShareFetchRequestsPerSec
    Partitions of ShareFetch requests that were refused.
kafka_server_brokertopicmetrics_totalshareacknowledgementrequests_total  counter  -
    kafka.server:type=BrokerTopicMetrics,name=TotalShareAcknowledgementRequestsPerSec
    ShareAcknowledge requests. Kafka counts each topic of a request, those of a ShareFetch too.
kafka_server_brokertopicmetrics_failedshareacknowledgementrequests_total  counter  -
    kafka.server:type=BrokerTopicMetrics,name=FailedShareAcknowledgementRequestsPerSec
    Partitions of ShareAcknowledge requests that were refused.
kafka_server_sharegroupmetrics_recordacknowledgements_total  counter  ackType
    kafka.server:type=ShareGroupMetrics,name=RecordAcknowledgementsPerSec
    Records that members of share groups acknowledged, by the type: Accept, Release, Reject, Renew.
kafka_server_sharegroupmetrics_partitionloadtimems  summary  -
    kafka.server:type=ShareGroupMetrics,name=PartitionLoadTimeMs
    Times in ms after which share partitions were loaded.
kafka_server_sharegroupmetrics_deadletterqueuerecordcount  counter  group
    kafka.server:type=ShareGroupMetrics,name=DeadLetterQueueRecordCount
    Dead letters of a share group that its queue has.
kafka_server_sharegroupmetrics_deadletterqueuetotalproducerequests_total  counter  group
    kafka.server:type=ShareGroupMetrics,name=DeadLetterQueueTotalProduceRequestsPerSec
    Produce requests with dead letters of a share group.
kafka_server_sharegroupmetrics_deadletterqueuefailedproducerequests_total  counter  group
    kafka.server:type=ShareGroupMetrics,name=DeadLetterQueueFailedProduceRequestsPerSec
    Those of them that failed.
kafka_server_sharepartitionmetrics_inflightmessagecount  gauge  group,topic,partition
    kafka.server:type=SharePartitionMetrics,name=InFlightMessageCount
    Offsets of a share partition that are in flight.
kafka_server_sharepartitionmetrics_inflightbatchcount  gauge  group,topic,partition
    kafka.server:type=SharePartitionMetrics,name=InFlightBatchCount
    Runs of records in which they are kept.
kafka_server_sharepartitionmetrics_acquisitionlocktimeout_total  counter  group,topic,partition
    kafka.server:type=SharePartitionMetrics,name=AcquisitionLockTimeoutPerSec
    Records whose acquisition lock expired.
kafka_server_sharesessioncache_sharesessionscount  gauge  -
    kafka.server:type=ShareSessionCache,name=ShareSessionsCount
    Share sessions of members with this broker.
kafka_server_sharesessioncache_sharepartitionscount  gauge  -
    kafka.server:type=ShareSessionCache,name=SharePartitionsCount
    Partitions in share sessions.
kafka_server_share_coordinator_metrics_write_total  counter  -
    kafka.server:type=share-coordinator-metrics,name=write-total
    Changes of delivery states and of leader epochs that the share coordinator wrote.
kafka_server_share_coordinator_metrics_last_pruned_offset  gauge  topic,partition
    kafka.server:type=share-coordinator-metrics,name=last-pruned-offset
    The offset below which a partition of the topic of share states was deleted last.
"""
