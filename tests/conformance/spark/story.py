"""Spark's own Kafka connector against a broker: what it reads and writes, and a checkpoint that changes its format.

A process of its own, because a Spark session is one; prints the facts as JSON.

    python -m tests.conformance.spark.story BOOTSTRAP DIRECTORY JARS
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from moldau.spark_jobs.session import local_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 10_000
COMMITTED = {"kafka.isolation.level": "read_committed"}


class ConnectorStory:
    """The stories of one session, each with a topic of its own."""

    def __init__(self, spark: SparkSession, bootstrap: str, directory: Path) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._directory = directory
        self.facts: dict[str, object] = {}

    def batch(self) -> None:
        """Keys, headers, partitions; offsets of JSON; minPartitions; both sources see the same rows."""
        self._create("batch", 4)
        rows = self._spark.range(ROWS).selectExpr(
            "concat('key-', id) AS key",
            "if(id % 100 = 0, NULL, concat('value-', id)) AS value",
            "array(struct('h' AS key, CAST(CAST(id AS STRING) AS BINARY) AS value)) AS headers",
        )
        rows.write.format("kafka").option("kafka.bootstrap.servers", self._bootstrap).option("topic", "batch").save()
        whole = self._read("kafka", "batch", includeHeaders="true")
        self.facts["batch: rows, keys, tombstones, headers"] = list(
            whole.selectExpr(
                "count(*)",
                "count(DISTINCT key)",
                "count_if(value IS NULL)",
                "count_if(CAST(headers[0].value AS STRING) = substr(CAST(key AS STRING), 5))",
            ).first()
            or ()
        )
        counts = whole.groupBy("partition").count().orderBy("partition").collect()
        self.facts["batch: rows of each partition"] = [row["count"] for row in counts]
        tasks = self._read("kafka", "batch", minPartitions="9")
        self.facts["batch: minPartitions=9"] = [tasks.rdd.getNumPartitions() >= 9, tasks.count()]
        starting = json.dumps({"batch": {"0": 5, "1": -2, "2": 7, "3": -2}})
        ending = json.dumps({"batch": {"0": 15, "1": 3, "2": 8, "3": 0}})
        self.facts["batch: a part"] = self._read(
            "kafka", "batch", startingOffsets=starting, endingOffsets=ending
        ).count()
        future = self._read("kafka", "batch", startingTimestamp="1", endingTimestamp=str(10**13))
        self.facts["batch: by timestamp"] = future.count()
        ours = self._read("moldau", "batch", includeHeaders="true")
        self.facts["batch: rows that only one of the sources has"] = whole.exceptAll(ours).count() + (
            ours.exceptAll(whole).count()
        )

    def transactions(self) -> None:
        self._create("transactions", 1)
        producer = Producer({"bootstrap.servers": self._bootstrap, "transactional.id": "spark-story"})
        producer.init_transactions()
        for number in range(4):
            producer.begin_transaction()
            for index in range(100):
                producer.produce("transactions", str(number), str(index))
            (producer.abort_transaction if number % 2 else producer.commit_transaction)()
        for name in ("kafka", "moldau"):
            counts = [self._read(name, "transactions", **each).count() for each in ({}, COMMITTED)]
            self.facts[f"transactions: uncommitted and committed rows by {name}"] = counts

    def stream(self) -> None:
        """Topic to topic, restarted from its checkpoint, by the connector alone."""
        self._create("source", 3)
        self._create("sink", 3)
        for round_ in range(2):
            self._fill("source", 1000)
            rows = self._stream("kafka", "source", maxOffsetsPerTrigger="300").select("key", "value")
            target = rows.writeStream.format("kafka").option("kafka.bootstrap.servers", self._bootstrap)
            query = (
                target.option("topic", "sink")
                .option("checkpointLocation", str(self._directory / "copy"))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            self.facts[f"stream: rows in the sink after round {round_}"] = self._read("kafka", "sink").count()

    def swap(self) -> None:
        """A checkpoint of the connector continues with the other format, and back."""
        self._create("swapped", 3)
        counts = []
        for name in ("kafka", "moldau", "kafka", "moldau"):
            self._fill("swapped", 500)
            rows = self._stream(name, "swapped").select("partition", "offset")
            writer = rows.writeStream.format("parquet").option("path", str(self._directory / "swapped"))
            query = (
                writer.option("checkpointLocation", str(self._directory / "swap")).trigger(availableNow=True).start()
            )
            query.awaitTermination()
            found = self._spark.read.parquet(str(self._directory / "swapped"))
            counts.append([found.count(), found.distinct().count()])
        self.facts["swap: rows and distinct rows, each run with the other format"] = counts

    def _read(self, name: str, topic: str, **options: str) -> DataFrame:
        source = self._spark.read.format(name).option("kafka.bootstrap.servers", self._bootstrap)
        return source.option("subscribe", topic).options(**options).load()

    def _stream(self, name: str, topic: str, **options: str) -> DataFrame:
        source = self._spark.readStream.format(name).option("kafka.bootstrap.servers", self._bootstrap)
        return source.option("subscribe", topic).option("startingOffsets", "earliest").options(**options).load()

    def _create(self, name: str, partitions: int) -> None:
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        for made in admin.create_topics([NewTopic(name, partitions, 1)]).values():
            made.result(30)

    def _fill(self, topic: str, count: int) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "partitioner": "murmur2_random"})
        for number in range(count):
            producer.produce(topic, str(number), str(number))
        producer.flush()


def main() -> None:
    bootstrap, directory, jars = sys.argv[1:]
    with local_session("connector", master="local[2]", settings={"spark.jars": jars}) as spark:
        story = ConnectorStory(spark, bootstrap, Path(directory))
        for part in (story.batch, story.transactions, story.stream, story.swap):
            part()
        print("FACTS " + json.dumps(story.facts), flush=True)


if __name__ == "__main__":
    main()
