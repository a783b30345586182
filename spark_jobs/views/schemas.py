"""The columns of each table, as Spark declares them. Every column may be null for Spark."""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from moldau.spark_jobs.options.read_options import ReadOptions

_TYPES: Final[dict[str, DataType]] = {
    "binary": BinaryType(),
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "string": StringType(),
    "timestamp": TimestampType(),
    "headers": ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
    "partitions": ArrayType(StructType([StructField("topic", StringType()), StructField("partition", IntegerType())])),
    "members": ArrayType(
        StructType(
            [
                StructField("memberId", StringType()),
                StructField("groupInstanceId", StringType()),
                StructField("clientId", StringType()),
                StructField("clientHost", StringType()),
            ]
        )
    ),
}


def _columns(declared: str) -> StructType:
    """A schema from words `name:type`."""
    fields = [word.partition(":") for word in declared.split()]
    return StructType([StructField(name, _TYPES[kind]) for name, _, kind in fields])


RECORDS: Final = _columns(
    "key:binary value:binary topic:string partition:int offset:long timestamp:timestamp timestampType:int"
)
"""The columns of Spark's Kafka connector; includeHeaders adds `headers`."""
HEADERS: Final = StructField("headers", _TYPES["headers"])
LATEST: Final = _columns(
    "key:binary value:binary topic:string partition:int offset:long timestamp:timestamp timestampType:int"
)
BATCHES: Final = _columns(
    "topic:string partition:int baseOffset:long lastOffset:long records:int bytes:long codec:string "
    "baseTimestamp:timestamp maxTimestamp:timestamp timestampType:int producerId:long producerEpoch:int "
    "baseSequence:int leaderEpoch:int isTransactional:boolean isControl:boolean isAborted:boolean "
    "deleteHorizon:timestamp position:long"
)
OFFSETS: Final = _columns(
    "group:string topic:string partition:int offset:long leaderEpoch:int metadata:string "
    "commitTimestamp:timestamp expireTimestamp:timestamp"
)
GROUPS: Final = _columns(
    "group:string type:string protocolType:string generation:int protocol:string leader:string "
    "stateTimestamp:timestamp members:members"
)
TRANSACTIONS: Final = _columns(
    "transactionalId:string producerId:long producerEpoch:int state:string timeoutMs:int partitions:partitions "
    "startTimestamp:timestamp updateTimestamp:timestamp"
)
TOPICS: Final = _columns(
    "topic:string topicId:string partition:int broker:int path:string logStartOffset:long highWatermark:long "
    "lastStableOffset:long segments:int bytes:long"
)
SEGMENTS: Final = _columns(
    "topic:string partition:int baseOffset:long endOffset:long bytes:long tier:string path:string isGrowing:boolean "
    "largestTimestamp:timestamp"
)
_SCHEMAS: Final = {
    "batches": BATCHES,
    "latest": LATEST,
    "offsets": OFFSETS,
    "groups": GROUPS,
    "transactions": TRANSACTIONS,
    "topics": TOPICS,
    "segments": SEGMENTS,
}


def schema_of(options: ReadOptions) -> StructType:
    """The columns of the table to read. The `records` table has its headers only under `includeHeaders`."""
    if options.table != "records":
        return _SCHEMAS[options.table]
    return StructType([*RECORDS.fields, HEADERS] if options.include_headers else list(RECORDS.fields))
