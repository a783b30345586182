"""Quix Streams: a producer, and a dataframe over the topic."""

import sys

from quixstreams import Application

bootstrap, topic, group, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
application = Application(bootstrap, consumer_group=group, auto_offset_reset="earliest", loglevel="ERROR")
read = application.topic(topic, key_deserializer="str", value_deserializer="str")

with application.get_producer() as producer:
    for n in range(count):
        producer.produce(topic, f"value {n}".encode(), f"key-{n}".encode(), headers={"place": str(n).encode()})


def show(value: str, key: str, timestamp: int, headers: list[tuple[str, bytes]]) -> None:
    print(key, value, headers[0][1].decode(), sep="\t")


application.dataframe(read).update(show, metadata=True)
application.run(count=count)
