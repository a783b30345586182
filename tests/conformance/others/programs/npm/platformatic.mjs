import { Admin, Consumer, Producer, stringDeserializers, stringSerializers } from "@platformatic/kafka";

const [bootstrap, topic, group, count] = process.argv.slice(2);
const shared = { clientId: "other", bootstrapBrokers: [bootstrap] };

const admin = new Admin(shared);
await admin.createTopics({ topics: [topic], partitions: 3, replicas: 1 });
await admin.close();

const producer = new Producer({ ...shared, serializers: stringSerializers });
const messages = [...Array(Number(count)).keys()].map((n) => ({
  topic, key: `key-${n}`, value: `value ${n}`, headers: { place: `${n}` },
}));
await producer.send({ messages });
await producer.close();

const consumer = new Consumer({ ...shared, groupId: group, deserializers: stringDeserializers });
const stream = await consumer.consume({ topics: [topic], mode: "earliest", autocommit: true });
let left = Number(count);
for await (const message of stream) {
  console.log(`${message.key}\t${message.value}\t${message.headers.get("place")}`);
  if (--left === 0) break;
}
await consumer.close(true);
