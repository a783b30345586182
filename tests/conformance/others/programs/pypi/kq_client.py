"""kq: jobs in a topic, and a worker of a group."""

import sys

from kafka import KafkaConsumer, KafkaProducer
from kq import Queue, Worker

bootstrap, topic, group, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])


def job(n: int) -> str:
    return f"key-{n}\tvalue {n}\t-"


def show(status: str, message: object, job: object, result: str, exception: object, stacktrace: object) -> None:
    print(result)


queue = Queue(topic, KafkaProducer(bootstrap_servers=bootstrap))
for n in range(count):
    queue.using(key=f"key-{n}".encode()).enqueue(job, n)
consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest")
worker = Worker(topic, consumer, callback=show)
worker.start(max_messages=count)
