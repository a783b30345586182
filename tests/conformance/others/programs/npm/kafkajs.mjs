import kafkajs from "kafkajs";

const [bootstrap, topic, group, count] = process.argv.slice(2);
const kafka = new kafkajs.Kafka({ brokers: [bootstrap], logLevel: kafkajs.logLevel.ERROR });

const admin = kafka.admin();
await admin.connect();
await admin.createTopics({ topics: [{ topic, numPartitions: 3, replicationFactor: 1 }] });
await admin.disconnect();

const producer = kafka.producer();
await producer.connect();
const messages = [...Array(Number(count)).keys()].map((n) => ({ key: `key-${n}`, value: `value ${n}`, headers: { place: `${n}` } }));
await producer.send({ topic, messages });
await producer.disconnect();

const consumer = kafka.consumer({ groupId: group });
await consumer.connect();
await consumer.subscribe({ topic, fromBeginning: true });
let left = Number(count);
await new Promise((done) =>
  consumer.run({
    eachMessage: async ({ message }) => {
      console.log(`${message.key}\t${message.value}\t${message.headers.place}`);
      if (--left === 0) done();
    },
  }),
);
await consumer.disconnect();
