"""kafka-python and its fork: a topic, a producer, a group."""

import sys

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import NewTopic

bootstrap, topic, group, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])

admin = KafkaAdminClient(bootstrap_servers=bootstrap)
admin.create_topics([NewTopic(topic, 3, 1)])
admin.close()

producer = KafkaProducer(bootstrap_servers=bootstrap)
for n in range(count):
    producer.send(topic, f"value {n}".encode(), f"key-{n}".encode(), headers=[("place", str(n).encode())])
producer.close()

consumer = KafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest")
for record in consumer:
    print(record.key.decode(), record.value.decode(), record.headers[0][1].decode(), sep="\t")
    count -= 1
    if not count:
        break
consumer.close()
