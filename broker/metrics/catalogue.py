"""The catalogue of all metrics: name, kind, labels, the name in Apache Kafka's JMX, and the meaning.

Names are those that Prometheus' JMX exporter gives to Apache Kafka's metrics, so that existing dashboards and alerts
work. Metrics that Apache Kafka does not have begin with `moldau_`, those of any process with `process_`. The rows are
text; a row has three lines:

    name  kind  labels
        Kafka's name, - if Kafka has no such metric
        What it means.

kind      counter | gauge | histogram | summary (a sum and a count); gauge/max, gauge/min: on the page of a machine with
          several broker processes the largest or the smallest value stands, and not the sum
labels    separated by commas, - for none
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from moldau.broker.metrics.group_rows import GROUP_ROWS
from moldau.broker.metrics.lag_rows import LAG_ROWS

ROWS = """
kafka_network_requestmetrics_requests_total  counter  request
    kafka.network:type=RequestMetrics,name=RequestsPerSec
    Requests of an API that were handled.
kafka_network_requestmetrics_errors_total  counter  request,error
    kafka.network:type=RequestMetrics,name=ErrorsPerSec
    Errors in replies: one for each partition, topic or group that was refused. NONE is not counted.
kafka_network_requestmetrics_totaltimems  histogram  request
    kafka.network:type=RequestMetrics,name=TotalTimeMs
    From the last byte of a request that was received to the last byte of its reply that the kernel was given, in ms.
kafka_network_requestmetrics_requestqueuetimems  histogram  request
    kafka.network:type=RequestMetrics,name=RequestQueueTimeMs
    The part of it before the broker began with the request, in ms: behind other requests, or while the loop was held.
kafka_network_requestmetrics_localtimems  histogram  request
    kafka.network:type=RequestMetrics,name=LocalTimeMs
    The part of it in which the handler worked, in ms.
kafka_network_requestmetrics_remotetimems  histogram  request
    kafka.network:type=RequestMetrics,name=RemoteTimeMs
    The part of it in which the request was parked, in ms: moldau_request_wait_ms says for what.
kafka_network_requestmetrics_responsequeuetimems  histogram  request
    kafka.network:type=RequestMetrics,name=ResponseQueueTimeMs
    The part of it in which the encoded response waited for those to earlier requests of the connection, in ms.
kafka_network_requestmetrics_responsesendtimems  histogram  request
    kafka.network:type=RequestMetrics,name=ResponseSendTimeMs
    The part of it from the beginning of the write to its end, in ms: longer if the client takes its replies slowly.
moldau_request_decode_ms  summary  request
    -
    The part of it in which the request was decoded; 0 for a produce that is like the one before it, and not counted.
moldau_request_encode_ms  summary  request
    -
    The part of it in which the response was encoded.
moldau_request_wait_ms  summary  request,waits_for
    -
    Times of RemoteTimeMs by their cause: replicas, flush, data, members, disk, validation, controller, coordinator.
moldau_slow_requests_total  counter  -
    -
    Requests that took longer than moldau.slow.request.ms, those without a line in the log included.
kafka_server_brokertopicmetrics_messagesin_total  counter  topic
    kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec
    Records appended by clients and coordinators; without a topic: all of them.
kafka_server_brokertopicmetrics_bytesin_total  counter  topic
    kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec
    Bytes of batches appended for clients; without a topic: all of them.
kafka_server_brokertopicmetrics_bytesout_total  counter  topic
    kafka.server:type=BrokerTopicMetrics,name=BytesOutPerSec
    Bytes of batches given to consumers; without a topic: all of them.
kafka_server_brokertopicmetrics_totalproducerequests_total  counter  -
    kafka.server:type=BrokerTopicMetrics,name=TotalProduceRequestsPerSec
    Produce requests. Kafka counts each partition of a request.
kafka_server_brokertopicmetrics_totalfetchrequests_total  counter  -
    kafka.server:type=BrokerTopicMetrics,name=TotalFetchRequestsPerSec
    Fetch requests. Kafka counts each partition of a request.
kafka_server_brokertopicmetrics_failedproducerequests_total  counter  -
    kafka.server:type=BrokerTopicMetrics,name=FailedProduceRequestsPerSec
    Partitions of Produce requests that were refused.
kafka_server_brokertopicmetrics_failedfetchrequests_total  counter  -
    kafka.server:type=BrokerTopicMetrics,name=FailedFetchRequestsPerSec
    Partitions of Fetch requests that were refused.
kafka_server_delayedoperationpurgatory_purgatorysize  gauge  delayedoperation
    kafka.server:type=DelayedOperationPurgatory,name=PurgatorySize
    Requests of an API that are parked now.
kafka_server_delayedoperationpurgatory_numdelayedoperations  gauge  delayedoperation
    kafka.server:type=DelayedOperationPurgatory,name=NumDelayedOperations
    Requests of an API that wait in the purgatory now: for data, a commit, a flush, or replicas.
kafka_server_socket_server_metrics_connection_count  gauge  listener
    kafka.server:type=socket-server-metrics,name=connection-count
    Connections that are open.
kafka_server_socket_server_metrics_connection_creation_total  counter  listener
    kafka.server:type=socket-server-metrics,name=connection-creation-total
    Connections that were made.
kafka_server_socket_server_metrics_connection_close_total  counter  listener
    kafka.server:type=socket-server-metrics,name=connection-close-total
    Connections that ended.
kafka_server_socket_server_metrics_incoming_byte_total  counter  listener
    kafka.server:type=socket-server-metrics,name=incoming-byte-total
    Bytes of requests.
kafka_server_socket_server_metrics_outgoing_byte_total  counter  listener
    kafka.server:type=socket-server-metrics,name=outgoing-byte-total
    Bytes of replies.
kafka_server_socket_server_metrics_successful_authentication_total  counter  listener,mechanism
    kafka.server:type=socket-server-metrics,name=successful-authentication-total
    Connections that authenticated, by SASL mechanism; SSL for TLS handshakes without SASL.
kafka_server_socket_server_metrics_failed_authentication_total  counter  listener,mechanism
    kafka.server:type=socket-server-metrics,name=failed-authentication-total
    Connections that failed to authenticate, TLS handshakes that failed among them.
kafka_server_socket_server_metrics_successful_reauthentication_total  counter  listener,mechanism
    kafka.server:type=socket-server-metrics,name=successful-reauthentication-total
    Times that a connection authenticated again before its session ended.
kafka_server_socket_server_metrics_failed_reauthentication_total  counter  listener,mechanism
    kafka.server:type=socket-server-metrics,name=failed-reauthentication-total
    Connections that failed to authenticate again.
moldau_malformed_requests_total  counter  listener
    -
    Connections that were closed because a request could not be parsed, or was larger than it may be.
kafka_network_socketserver_expiredconnectionskilledcount  gauge  listener
    kafka.network:type=SocketServer,name=ExpiredConnectionsKilledCount
    Connections closed since the start because they sent nothing for long; it only grows, and is a gauge in Kafka.
moldau_connections_refused_total  counter  listener
    -
    Connections that were closed at once because their address had too many.
moldau_connections_excess_closed_total  counter  listener
    -
    Connections that were closed because there were more than max.connections.
moldau_accept_blocked  gauge  listener
    -
    1 while connections wait to be accepted because the listener has reached a limit on their number or rate.
moldau_accept_blocked_seconds_total  counter  listener
    -
    How long connections waited so; its rate() is what Kafka calls AcceptorBlockedPercent.
moldau_accept_failures_total  counter  listener
    -
    Times when no connection could be accepted for want of a file descriptor or of memory; each takes a second.
kafka_network_socketserver_memorypoolused  gauge  -
    kafka.network:type=SocketServer,name=MemoryPoolUsed
    Bytes that requests hold which have not arrived whole.
kafka_network_socketserver_memorypoolavailable  gauge  -
    kafka.network:type=SocketServer,name=MemoryPoolAvailable
    What is left of queued.max.request.bytes; less than 0 while the one request that may is above it.
moldau_request_memory_waiting_connections  gauge  -
    -
    Connections that are not read because there is no room for their requests.
moldau_request_memory_waits_total  counter  -
    -
    How often a connection had to wait for room.
moldau_request_memory_stalled_total  counter  -
    -
    Connections that were closed because their requests hardly moved while others waited for room.
moldau_turns_waiting_connections  gauge  -
    -
    Connections with requests that wait for their turn, because an iteration of the event loop has no more time.
moldau_large_batches_examined_total  counter  -
    -
    Batches that expand so far, or hold so many records, that they were examined in an executor thread.
moldau_large_batches_waiting_bytes  gauge  -
    -
    Bytes of such batches that are examined or wait for it.
moldau_reply_memory_used_bytes  gauge  -
    -
    Bytes of replies that have not left, as far as they are copies and not slices of files.
moldau_reply_memory_holders  gauge  -
    -
    Connections that have not taken all of their replies.
moldau_slow_readers_aborted_total  counter  -
    -
    Connections that were closed because they took nothing while there was no room for the replies of others.
kafka_server_replicamanager_partitioncount  gauge  -
    kafka.server:type=ReplicaManager,name=PartitionCount
    Partitions on this broker.
kafka_server_replicamanager_leadercount  gauge  -
    kafka.server:type=ReplicaManager,name=LeaderCount
    Partitions that this broker leads.
kafka_server_replicamanager_underreplicatedpartitions  gauge  -
    kafka.server:type=ReplicaManager,name=UnderReplicatedPartitions
    Partitions that this broker leads and that lack replicas in sync.
kafka_server_replicamanager_underminisrpartitioncount  gauge  -
    kafka.server:type=ReplicaManager,name=UnderMinIsrPartitionCount
    Partitions that this broker leads and that refuse acks=all.
kafka_server_replicamanager_atminisrpartitioncount  gauge  -
    kafka.server:type=ReplicaManager,name=AtMinIsrPartitionCount
    Partitions that this broker leads and that would refuse acks=all with one replica fewer.
kafka_server_replicamanager_isrshrinks_total  counter  -
    kafka.server:type=ReplicaManager,name=IsrShrinksPerSec
    Changes of in-sync sets to fewer replicas, asked for by this broker and confirmed.
kafka_server_replicamanager_isrexpands_total  counter  -
    kafka.server:type=ReplicaManager,name=IsrExpandsPerSec
    The same to more replicas.
kafka_server_replicamanager_failedisrupdates_total  counter  -
    kafka.server:type=ReplicaManager,name=FailedIsrUpdatesPerSec
    Changes of in-sync sets that the controller did not take.
kafka_server_replicamanager_reassigningpartitions  gauge  -
    kafka.server:type=ReplicaManager,name=ReassigningPartitions
    Partitions that this broker leads and that are being moved.
kafka_server_replicamanager_produceridcount  gauge  -
    kafka.server:type=ReplicaManager,name=ProducerIdCount
    Idempotent and transactional producers that the logs of this broker remember, each once for each partition.
kafka_server_replicamanager_partitionswithlatetransactionscount  gauge  -
    kafka.server:type=ReplicaManager,name=PartitionsWithLateTransactionsCount
    Partitions whose oldest open transaction has no record since transaction.max.timeout.ms and five minutes.
moldau_replica_lag_max  gauge/max  -
    -
    Offsets by which the replica on this broker that is furthest behind its leader lags; what Kafka's MaxLag tells.
kafka_server_replicamanager_offlinereplicacount  gauge  -
    kafka.server:type=ReplicaManager,name=OfflineReplicaCount
    Partitions on this broker that are in no log directory that is online.
kafka_server_leaderreplication_byte_rate  gauge  -
    kafka.server:type=LeaderReplication,name=byte-rate
    Bytes a second that this broker's leaders served to throttled replicas, over the samples of the quota.
kafka_server_followerreplication_byte_rate  gauge  -
    kafka.server:type=FollowerReplication,name=byte-rate
    Bytes a second that this broker's throttled replicas fetched, over the samples of the quota.
moldau_damaged_replicas  gauge  -
    -
    Replicas on this broker that are fenced because a batch in their log is damaged; among the offline ones.
moldau_damaged_replicas_found_total  counter  -
    -
    Replicas that were found damaged since the start.
moldau_damaged_replicas_repaired_total  counter  -
    -
    Of them, those whose bad segments were set aside to be fetched again.
kafka_log_logcleaner_cleaner_recopy_percent  gauge/max  -
    kafka.log:type=LogCleaner,name=cleaner-recopy-percent
    Bytes that the log cleaner wrote, in percent of those that it read, since the start.
kafka_log_logcleaner_max_buffer_utilization_percent  gauge/max  -
    kafka.log:type=LogCleaner,name=max-buffer-utilization-percent
    How full the offset map of a cleaning was at the most.
kafka_log_logcleaner_max_clean_time_secs  gauge/max  -
    kafka.log:type=LogCleaner,name=max-clean-time-secs
    How long the slowest cleaning of a log took.
kafka_log_logcleaner_max_compaction_delay_secs  gauge/max  -
    kafka.log:type=LogCleaner,name=max-compaction-delay-secs
    By how much the most overdue log has passed its max.compaction.lag.ms.
kafka_log_logcleanermanager_max_dirty_percent  gauge/max  -
    kafka.log:type=LogCleanerManager,name=max-dirty-percent
    The largest share of bytes of a log that the cleaner may clean and has not cleaned yet.
kafka_log_logcleanermanager_time_since_last_run_ms  gauge/max  -
    kafka.log:type=LogCleanerManager,name=time-since-last-run-ms
    Time since the cleaner last looked for a log to clean.
kafka_log_logcleanermanager_uncleanable_partitions_count  gauge  logDirectory
    kafka.log:type=LogCleanerManager,name=uncleanable-partitions-count
    Logs that the cleaner leaves out until the broker restarts, because a batch is damaged.
kafka_log_logcleanermanager_uncleanable_bytes  gauge  logDirectory
    kafka.log:type=LogCleanerManager,name=uncleanable-bytes
    Bytes of those logs.
moldau_log_cleaner_read_bytes_total  counter  -
    -
    Bytes that the log cleaner has read.
moldau_log_cleaner_written_bytes_total  counter  -
    -
    Bytes that the log cleaner has written.
moldau_log_cleaner_cleanings_total  counter  -
    -
    Rounds of cleaning of a log that were finished.
moldau_log_cleaner_failures_total  counter  -
    -
    Rounds that ended because the disk refused or the process of the work ended; they are tried again.
kafka_log_logmanager_offlinelogdirectorycount  gauge  -
    kafka.log:type=LogManager,name=OfflineLogDirectoryCount
    Log directories that failed; they come back with a restart.
kafka_log_logmanager_logdirectoryoffline  gauge  logDirectory
    kafka.log:type=LogManager,name=LogDirectoryOffline
    1 if the log directory has failed.
moldau_log_directories_full  gauge  -
    -
    Log directories whose disk has no room: they are read, and take nothing until it has.
moldau_disk_full_refusals_total  counter  -
    -
    Writes that were refused because a disk was full.
moldau_file_descriptor_refusals_total  counter  -
    -
    Requests that were refused because the process had too many files open.
moldau_open_files  gauge  -
    -
    Files that segments and their indexes keep open between uses.
moldau_open_files_max  gauge  -
    -
    How many of them may be; 0 where there is no bound.
moldau_open_files_given_back_total  counter  -
    -
    Those that were closed to make room for others, and are opened again when they are used.
kafka_controller_kafkacontroller_activecontrollercount  gauge  -
    kafka.controller:type=KafkaController,name=ActiveControllerCount
    1 where this node is the active controller.
kafka_controller_kafkacontroller_activebrokercount  gauge/max  -
    kafka.controller:type=KafkaController,name=ActiveBrokerCount
    Brokers that serve.
kafka_controller_kafkacontroller_fencedbrokercount  gauge/max  -
    kafka.controller:type=KafkaController,name=FencedBrokerCount
    Brokers that are registered and do not serve.
kafka_controller_kafkacontroller_globaltopiccount  gauge/max  -
    kafka.controller:type=KafkaController,name=GlobalTopicCount
    Topics of the cluster.
kafka_controller_kafkacontroller_globalpartitioncount  gauge/max  -
    kafka.controller:type=KafkaController,name=GlobalPartitionCount
    Partitions of the cluster.
kafka_controller_kafkacontroller_offlinepartitionscount  gauge/max  -
    kafka.controller:type=KafkaController,name=OfflinePartitionsCount
    Partitions of the cluster without a leader.
kafka_server_broker_metadata_metrics_last_applied_record_offset  gauge/max  -
    kafka.server:type=broker-metadata-metrics,name=last-applied-record-offset
    Offset of the last metadata record that this broker has taken in.
kafka_server_raft_metrics_current_leader  gauge/max  -
    kafka.server:type=raft-metrics,name=current-leader
    Node that leads the metadata quorum; -1 where it has no leader.
kafka_server_raft_metrics_current_epoch  gauge/max  -
    kafka.server:type=raft-metrics,name=current-epoch
    Epoch of the metadata quorum.
kafka_server_raft_metrics_high_watermark  gauge/max  -
    kafka.server:type=raft-metrics,name=high-watermark
    Up to where the metadata log is committed.
kafka_server_raft_metrics_log_end_offset  gauge/max  -
    kafka.server:type=raft-metrics,name=log-end-offset
    Where the metadata log ends.
kafka_server_snapshotemitter_latestsnapshotgeneratedagems  gauge/max  -
    kafka.server:type=SnapshotEmitter,name=LatestSnapshotGeneratedAgeMs
    Time since the latest metadata snapshot began, or since the start, in ms.
kafka_log_log_size  gauge  topic,partition
    kafka.log:type=Log,name=Size
    Bytes of a partition's segments.
kafka_log_log_logstartoffset  gauge/max  topic,partition
    kafka.log:type=Log,name=LogStartOffset
    First offset of a partition.
kafka_log_log_logendoffset  gauge/max  topic,partition
    kafka.log:type=Log,name=LogEndOffset
    Offset that a partition's next record will have.
kafka_log_log_numlogsegments  gauge  topic,partition
    kafka.log:type=Log,name=NumLogSegments
    Segments of a partition.
kafka_log_logflushstats_logflushrateandtimems  summary  -
    kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs
    Syncs of logs, the metadata log's too, and how long they took, in ms.
moldau_log_size_bytes  gauge  -
    -
    Bytes of all segments on this broker.
moldau_log_segments  gauge  -
    -
    Segments on this broker.
moldau_log_segments_deleted_total  counter  -
    -
    Segments that retention gave up.
moldau_transactional_ids  gauge  state
    -
    Transactional ids that this broker coordinates, by the state of their transaction.
kafka_server_kafkaserver_brokerstate  gauge/min  -
    kafka.server:type=KafkaServer,name=BrokerState
    1 starting, 3 running, 7 stopping.
moldau_event_loop_stall_seconds  histogram  -
    -
    How late a timer of 100 ms fired, which is how long a request may have waited. Kafka's nearest: RequestQueueTimeMs.
moldau_event_loop_stall_p999_seconds  gauge/max  -
    -
    99.9 % of the timers of the last ten minutes were no later than this.
moldau_event_loop_longest_step_seconds  gauge/max  step
    -
    The request, task or callback that held the event loop longest since the beginning of the last minute that is over.
moldau_event_loop_stall_longest_seconds  gauge/max  -
    -
    The latest one since the start.
moldau_gc_pause_seconds  summary  generation
    java.lang:type=GarbageCollector
    Collections of cyclic garbage, and how long the process stood still for them.
process_cpu_seconds_total  counter  -
    java.lang:type=OperatingSystem,name=ProcessCpuTime
    CPU time of the process, user and system.
process_resident_memory_bytes  gauge  -
    java.lang:type=Memory
    Memory of the process that is resident.
process_open_fds  gauge  -
    java.lang:type=OperatingSystem,name=OpenFileDescriptorCount
    File descriptors in use.
process_max_fds  gauge  -
    java.lang:type=OperatingSystem,name=MaxFileDescriptorCount
    File descriptors that the process may have.
moldau_core_up  gauge  broker
    -
    1 where a broker process of this machine has answered this scrape, 0 where it has not; only with moldau.cores.
moldau_uptime_seconds  gauge/min  -
    java.lang:type=Runtime,name=Uptime
    Time since the node was put together.
moldau_build_info  gauge/max  version,kafka,python
    kafka.server:type=app-info
    Always 1; the labels say which version this is, and which Apache Kafka it stands for.
moldau_scrape_seconds  gauge/max  -
    -
    How long it took to gather the metrics of the scrape before this one.
moldau_series_left_out  gauge  -
    -
    Topics, partitions, clients and groups without metrics of their own: beyond moldau.metrics.series.max, or too long.
"""
TIERED_ROWS = """
kafka_server_brokertopicmetrics_remotefetchbytes_total  counter  topic
    kafka.server:type=BrokerTopicMetrics,name=RemoteFetchBytesPerSec
    Bytes of batches read from remote storage for consumers, also ahead of them; without a topic: all of them.
kafka_server_brokertopicmetrics_remotefetchrequests_total  counter  topic
    kafka.server:type=BrokerTopicMetrics,name=RemoteFetchRequestsPerSec
    Reads of remote storage for consumers; without a topic: all of them.
kafka_server_brokertopicmetrics_remotefetcherrors_total  counter  topic
    kafka.server:type=BrokerTopicMetrics,name=RemoteFetchErrorsPerSec
    Those of them that failed; without a topic: all of them.
kafka_server_brokertopicmetrics_remotecopybytes_total  counter  topic
    kafka.server:type=BrokerTopicMetrics,name=RemoteCopyBytesPerSec
    Bytes of segments copied to remote storage; without a topic: all of them.
kafka_server_brokertopicmetrics_remotecopyrequests_total  counter  topic
    kafka.server:type=BrokerTopicMetrics,name=RemoteCopyRequestsPerSec
    Copies of segments that were begun; without a topic: all of them.
kafka_server_brokertopicmetrics_remotecopyerrors_total  counter  topic
    kafka.server:type=BrokerTopicMetrics,name=RemoteCopyErrorsPerSec
    Those of them that failed; without a topic: all of them.
kafka_server_brokertopicmetrics_remotedeleterequests_total  counter  topic
    kafka.server:type=BrokerTopicMetrics,name=RemoteDeleteRequestsPerSec
    Deletions of remote segments that were begun; without a topic: all of them.
kafka_server_brokertopicmetrics_remotedeleteerrors_total  counter  topic
    kafka.server:type=BrokerTopicMetrics,name=RemoteDeleteErrorsPerSec
    Those of them that failed; without a topic: all of them.
kafka_server_brokertopicmetrics_buildremotelogauxstaterequests_total  counter  topic
    kafka.server:type=BrokerTopicMetrics,name=BuildRemoteLogAuxStateRequestsPerSec
    Times when a follower asked for the state of the remote part of its log; without a topic: all of them.
kafka_server_brokertopicmetrics_buildremotelogauxstateerrors_total  counter  topic
    kafka.server:type=BrokerTopicMetrics,name=BuildRemoteLogAuxStateErrorsPerSec
    Those of them that failed; without a topic: all of them.
kafka_server_brokertopicmetrics_remotecopylagbytes  gauge  topic
    kafka.server:type=BrokerTopicMetrics,name=RemoteCopyLagBytes
    Bytes of rolled segments, of partitions led here, that are not in remote storage; without a topic: all of them.
kafka_server_brokertopicmetrics_remotecopylagsegments  gauge  topic
    kafka.server:type=BrokerTopicMetrics,name=RemoteCopyLagSegments
    The number of these segments; without a topic: all of them.
kafka_server_brokertopicmetrics_remotedeletelagbytes  gauge  topic
    kafka.server:type=BrokerTopicMetrics,name=RemoteDeleteLagBytes
    Bytes of remote segments that retention gave up and that are not deleted yet; without a topic: all of them.
kafka_server_brokertopicmetrics_remotedeletelagsegments  gauge  topic
    kafka.server:type=BrokerTopicMetrics,name=RemoteDeleteLagSegments
    The number of these segments; without a topic: all of them.
kafka_server_brokertopicmetrics_remotelogsizebytes  gauge  topic
    kafka.server:type=BrokerTopicMetrics,name=RemoteLogSizeBytes
    Bytes of the remote segments that are read, of partitions led here; without a topic: all of them.
kafka_server_brokertopicmetrics_remotelogmetadatacount  gauge  topic
    kafka.server:type=BrokerTopicMetrics,name=RemoteLogMetadataCount
    Remote segments in any state, of partitions led here; without a topic: all of them.
kafka_server_brokertopicmetrics_remotelogsizecomputationtime  gauge/max  topic
    kafka.server:type=BrokerTopicMetrics,name=RemoteLogSizeComputationTime
    How long the last round of retention took to find what it deletes, in ms; without a topic: all of them.
kafka_log_remote_remotelogmanager_remotelogmanagertasksavgidlepercent  gauge/min  -
    kafka.log.remote:type=RemoteLogManager,name=RemoteLogManagerTasksAvgIdlePercent
    The part of remote.log.manager.copier.thread.pool.size that is not copying now.
kafka_log_remote_remotelogmanager_remotelogreaderfetchrateandtimems  summary  -
    kafka.log.remote:type=RemoteLogManager,name=RemoteLogReaderFetchRateAndTimeMs
    Reads of remote storage that ended, and how long they took, in ms.
kafka_log_remote_remotestoragethreadpool_remotelogreadertaskqueuesize  gauge  -
    kafka.log.remote:type=RemoteStorageThreadPool,name=RemoteLogReaderTaskQueueSize
    Reads of remote storage that wait for others to end.
kafka_log_remote_remotestoragethreadpool_remotelogreaderavgidlepercent  gauge/min  -
    kafka.log.remote:type=RemoteStorageThreadPool,name=RemoteLogReaderAvgIdlePercent
    The part of remote.log.reader.threads that is not reading now.
kafka_server_remotelogmanager_remote_copy_throttle_time_avg  gauge/max  -
    kafka.server:type=RemoteLogManager,name=remote-copy-throttle-time-avg
    Mean time in ms for which copies were told to wait for their quota, of the last minute.
kafka_server_remotelogmanager_remote_copy_throttle_time_max  gauge/max  -
    kafka.server:type=RemoteLogManager,name=remote-copy-throttle-time-max
    The longest of these times.
kafka_server_remotelogmanager_remote_fetch_throttle_time_avg  gauge/max  -
    kafka.server:type=RemoteLogManager,name=remote-fetch-throttle-time-avg
    Mean time in ms for which remote reads exceeded their quota, of the last minute.
kafka_server_remotelogmanager_remote_fetch_throttle_time_max  gauge/max  -
    kafka.server:type=RemoteLogManager,name=remote-fetch-throttle-time-max
    The longest of these times.
moldau_remote_index_cache_bytes  gauge  -
    -
    Bytes of the indexes of remote segments on the local disk.
moldau_remote_index_cache_hits_total  counter  -
    -
    Lookups in remote segments whose indexes were there.
moldau_remote_index_cache_misses_total  counter  -
    -
    Those whose indexes were loaded from remote storage.
moldau_remote_log_metadata_memory_bytes  gauge  -
    -
    Memory for the metadata of all remote segments that this broker knows.
moldau_remote_log_metadata_unreadable_total  counter  -
    -
    Records of the remote log metadata that this version cannot read, and passed over.
"""
"""The rows of the metrics of tiered storage."""
QUOTA_ROWS = """
kafka_server_produce_byte_rate  gauge  user,client_id
    kafka.server:type=Produce,name=byte-rate
    Bytes a second of Produce requests of the clients that share a quota, over the windows of the quota.
kafka_server_produce_throttle_time  gauge/max  user,client_id
    kafka.server:type=Produce,name=throttle-time
    Mean time in ms for which these clients were throttled, of the last minute.
kafka_server_fetch_byte_rate  gauge  user,client_id
    kafka.server:type=Fetch,name=byte-rate
    Bytes a second of Fetch responses to the clients that share a quota, over the windows of the quota.
kafka_server_fetch_throttle_time  gauge/max  user,client_id
    kafka.server:type=Fetch,name=throttle-time
    Mean time in ms for which these clients were throttled, of the last minute.
kafka_server_request_request_time  gauge  user,client_id
    kafka.server:type=Request,name=request-time
    Time of request handlers for the clients that share a quota, in percent of one thread, over the windows.
kafka_server_request_throttle_time  gauge/max  user,client_id
    kafka.server:type=Request,name=throttle-time
    Mean time in ms for which these clients were throttled, of the last minute.
kafka_server_controllermutation_tokens  gauge  user,client_id
    kafka.server:type=ControllerMutation,name=tokens
    Partitions that such clients may create or delete at once, negative for debts; told by the active controller.
kafka_server_socket_server_metrics_connection_accept_rate  gauge  ip
    kafka.server:type=socket-server-metrics,name=connection-accept-rate
    Connections a second from an address that has a quota, over the windows of the quota.
kafka_server_socket_server_metrics_ip_connection_accept_throttle_time  gauge/max  listener
    kafka.server:type=socket-server-metrics,name=ip-connection-accept-throttle-time
    Mean time in ms after which connections above that quota were closed, of the last minute.
moldau_throttled_connections_total  counter  listener
    -
    Connections that were closed without an answer, because their address made them too fast.
"""
"""The rows of the metrics of client quotas."""


class Metric(NamedTuple):
    """A row of the catalogue: name, kind, labels and meaning of a metric."""

    name: str
    kind: str
    labels: tuple[str, ...]
    kafka_name: str | None
    meaning: str
    fold: str
    """The function that combines the values of several broker processes: sum, max or min."""


@cache
def metrics() -> dict[str, Metric]:
    """All metrics by name, in the order of the page."""
    lines = [
        line for rows in (ROWS, GROUP_ROWS, LAG_ROWS, TIERED_ROWS, QUOTA_ROWS) for line in rows.strip().split("\n")
    ]
    rows = zip(lines[0::3], lines[1::3], lines[2::3], strict=True)
    return {metric.name: metric for metric in (_read(*map(str.strip, row)) for row in rows)}


def _read(columns: str, kafka_name: str, words: str) -> Metric:
    name, kind, labels = columns.split()
    names = () if labels == "-" else tuple(labels.split(","))
    kind, _, fold = kind.partition("/")
    return Metric(name, kind, names, None if kafka_name == "-" else kafka_name, words, fold or "sum")
