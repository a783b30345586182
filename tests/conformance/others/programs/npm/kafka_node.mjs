import kafka from "kafka-node";

const [bootstrap, topic, group, count] = process.argv.slice(2);
const failed = (error) => {
  console.error(`${error}`);
  process.exit(1);
};
const called = (method) => new Promise((done) => method((error, result) => (error ? failed(error) : done(result))));

const client = new kafka.KafkaClient({ kafkaHost: bootstrap, connectTimeout: 5000 });
client.on("error", failed);
const producer = new kafka.Producer(client);
producer.on("error", failed);
await new Promise((done) => producer.on("ready", done));
const payloads = [...Array(Number(count)).keys()].map((n) => ({ topic, key: `key-${n}`, messages: [`value ${n}`], partition: n % 3 }));
await called((callback) => producer.send(payloads, callback));

const consumer = new kafka.ConsumerGroup({ kafkaHost: bootstrap, groupId: group, fromOffset: "earliest" }, [topic]);
consumer.on("error", failed);
let left = Number(count);
consumer.on("message", ({ key, value }) => {
  console.log(`${key}\t${value}\t-`);
  if (--left === 0) consumer.close(() => process.exit(0));
});
