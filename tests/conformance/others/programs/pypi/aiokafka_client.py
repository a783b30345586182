"""aiokafka: a topic, a producer, a group."""

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

bootstrap, topic, group, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])


async def main() -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(topic, 3, 1)])
    await admin.close()

    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        for n in range(count):
            headers = [("place", str(n).encode())]
            await producer.send_and_wait(topic, f"value {n}".encode(), f"key-{n}".encode(), headers=headers)

    own = {"group_id": group, "auto_offset_reset": "earliest"}
    async with AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, **own) as consumer:
        for _ in range(count):
            record = await consumer.getone()
            print(record.key.decode(), record.value.decode(), record.headers[0][1].decode(), sep="\t")


asyncio.run(main())
