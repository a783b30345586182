"""The catalogue rows of the metrics of consumer lag, in the form of `catalogue.py`, with the names of
kafka-lag-exporter.
"""

from __future__ import annotations

from typing import Final

LAG_ROWS: Final = """
kafka_consumergroup_group_sum_lag  gauge  group,kind
    -
    Records of all partitions that a group has not read, of any kind: classic, consumer, share, streams.
kafka_consumergroup_group_max_lag  gauge/max  group,kind
    -
    Those of the partition in which the group has most of them.
kafka_consumergroup_group_max_lag_seconds  gauge/max  group,kind
    -
    The age of the oldest record that a group has not read; 0 if it has read all.
kafka_consumergroup_group_topic_sum_lag  gauge  group,topic
    -
    Records of a topic that a group has not read.
kafka_consumergroup_group_lag  gauge  group,topic,partition
    -
    Records of a partition that a group has not read.
kafka_consumergroup_group_lag_seconds  gauge/max  group,topic,partition
    -
    The age of the first of them; 0 if there is none.
kafka_consumergroup_group_offset  gauge  group,topic,partition
    -
    The offset that the group reads next: the committed one, or the start offset of a share partition.
moldau_group_lag_uncounted_partitions  gauge  group
    -
    Partitions of a group whose records were not counted one by one: their lag is the difference of two offsets.
moldau_group_lag_sample_seconds  gauge/max  -
    -
    How long the last sample of all lags took, waits included.
"""
