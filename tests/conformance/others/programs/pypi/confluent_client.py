"""confluent-kafka: a topic, a producer, a group."""

import sys

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

bootstrap, topic, group, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
shared = {"bootstrap.servers": bootstrap}

admin = AdminClient(shared)
admin.create_topics([NewTopic(topic, 3, 1)])[topic].result()

producer = Producer(shared)
for n in range(count):
    producer.produce(topic, f"value {n}", f"key-{n}", headers={"place": str(n)})
producer.flush()

consumer = Consumer({**shared, "group.id": group, "auto.offset.reset": "earliest"})
consumer.subscribe([topic])
while count:
    record = consumer.poll(1.0)
    if record is None:
        continue
    if record.error():
        raise KafkaException(record.error())
    print(record.key().decode(), record.value().decode(), record.headers()[0][1].decode(), sep="\t")
    count -= 1
consumer.close()
