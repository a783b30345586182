"""Faust: a producer, an agent, and a table with its changelog."""

import os
import sys

import faust

bootstrap, topic, group, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
app = faust.App(group, broker=f"kafka://{bootstrap}", topic_partitions=3, web_enabled=False)
stream = app.topic(topic, key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw")
seen = app.Table("seen", default=int, partitions=3)


@app.agent(stream)
async def read(events: faust.StreamT) -> None:
    left = count
    async for event in events.events():
        seen[event.key.decode()] += 1
        shown = event.key.decode(), event.value.decode(), event.headers["place"].decode()
        print(*shown, sep="\t", flush=True, file=sys.__stdout__)  # sys.stdout is the log
        left -= 1
        if not left:
            os._exit(0)


@app.task
async def produce() -> None:
    for n in range(count):
        await stream.send(key=f"key-{n}".encode(), value=f"value {n}".encode(), headers={"place": str(n).encode()})


sys.argv[1:] = ["worker", "-l", "error"]
app.main()
