"""FastStream: a broker with a subscriber in a group."""

import asyncio
import sys

from faststream import FastStream
from faststream.kafka import KafkaBroker, KafkaMessage

bootstrap, topic, group, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
broker = KafkaBroker(bootstrap)
app = FastStream(broker)
left = count


@broker.subscriber(topic, group_id=group, auto_offset_reset="earliest")
async def read(message: KafkaMessage) -> None:
    global left
    key, value = message.raw_message.key.decode(), message.body.decode()
    print(key, value, message.headers["place"], sep="\t", flush=True)
    left -= 1
    if not left:
        app.exit()


@app.after_startup
async def produce() -> None:
    for n in range(count):
        await broker.publish(f"value {n}", topic, key=f"key-{n}".encode(), headers={"place": str(n)})


asyncio.run(app.run())
