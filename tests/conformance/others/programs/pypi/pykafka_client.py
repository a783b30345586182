"""pykafka: a producer, and a consumer that is balanced by the brokers."""

import sys

from pykafka import KafkaClient
from pykafka.common import OffsetType

bootstrap, topic, group, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])

client = KafkaClient(hosts=bootstrap, broker_version="2.3.0")
named = client.topics[topic.encode()]
with named.get_sync_producer() as producer:
    for n in range(count):
        producer.produce(f"value {n}".encode(), partition_key=f"key-{n}".encode())

consumer = named.get_balanced_consumer(
    group.encode(), managed=True, auto_offset_reset=OffsetType.EARLIEST, auto_commit_enable=True
)
for _ in range(count):
    record = consumer.consume()
    print(record.partition_key.decode(), record.value.decode(), "-", sep="\t")
consumer.stop()
