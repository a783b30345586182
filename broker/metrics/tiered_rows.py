"""The rows of the metrics catalogue for tiered storage (`catalogue.py`)."""

from __future__ import annotations

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
kafka_server_brokertopicmetrics_remotelogsizecomputationtime  gauge  topic
    kafka.server:type=BrokerTopicMetrics,name=RemoteLogSizeComputationTime
    How long the last round of retention took to find what it deletes, in ms; without a topic: all of them.
kafka_log_remote_remotelogmanager_remotelogmanagertasksavgidlepercent  gauge  -
    kafka.log.remote:type=RemoteLogManager,name=RemoteLogManagerTasksAvgIdlePercent
    The part of remote.log.manager.copier.thread.pool.size that is not copying now.
kafka_log_remote_remotelogmanager_remotelogreaderfetchrateandtimems  summary  -
    kafka.log.remote:type=RemoteLogManager,name=RemoteLogReaderFetchRateAndTimeMs
    Reads of remote storage that ended, and how long they took, in ms.
kafka_log_remote_remotestoragethreadpool_remotelogreadertaskqueuesize  gauge  -
    kafka.log.remote:type=RemoteStorageThreadPool,name=RemoteLogReaderTaskQueueSize
    Reads of remote storage that wait for others to end.
kafka_log_remote_remotestoragethreadpool_remotelogreaderavgidlepercent  gauge  -
    kafka.log.remote:type=RemoteStorageThreadPool,name=RemoteLogReaderAvgIdlePercent
    The part of remote.log.reader.threads that is not reading now.
kafka_server_remotelogmanager_remote_copy_throttle_time_avg  gauge  -
    kafka.server:type=RemoteLogManager,name=remote-copy-throttle-time-avg
    Mean time in ms for which copies were told to wait for their quota, of the last minute.
kafka_server_remotelogmanager_remote_copy_throttle_time_max  gauge  -
    kafka.server:type=RemoteLogManager,name=remote-copy-throttle-time-max
    The longest of these times.
kafka_server_remotelogmanager_remote_fetch_throttle_time_avg  gauge  -
    kafka.server:type=RemoteLogManager,name=remote-fetch-throttle-time-avg
    Mean time in ms for which remote reads exceeded their quota, of the last minute.
kafka_server_remotelogmanager_remote_fetch_throttle_time_max  gauge  -
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
