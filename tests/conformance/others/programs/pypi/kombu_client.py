"""kombu, the messaging of Celery: a queue, which is a topic."""

import sys

from kombu import Connection

bootstrap, topic, count = sys.argv[1], sys.argv[2], int(sys.argv[4])
with Connection(f"confluentkafka://{bootstrap}") as connection:
    queue = connection.SimpleQueue(topic)
    for n in range(count):
        queue.put({"value": f"value {n}"}, headers={"key": f"key-{n}"})
    for _ in range(count):
        message = queue.get(timeout=30)
        print(message.headers["key"], message.payload["value"], "-", sep="\t")
        message.ack()
    queue.close()
