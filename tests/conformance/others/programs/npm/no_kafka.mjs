import kafka from "no-kafka";

const [bootstrap, topic, group, count] = process.argv.slice(2);
const options = { connectionString: bootstrap, retries: { attempts: 2 }, logger: { logLevel: 1 } };

const producer = new kafka.Producer(options);
await producer.init();
const messages = [...Array(Number(count)).keys()].map((n) => ({
  topic, partition: n % 3, message: { key: `key-${n}`, value: `value ${n}` },
}));
for (const { error } of await producer.send(messages)) if (error) throw error;
await producer.end();

const consumer = new kafka.GroupConsumer({ ...options, groupId: group, startingOffset: kafka.EARLIEST_OFFSET });
let left = Number(count);
await new Promise((done) =>
  consumer.init([{
    subscriptions: [topic],
    handler: (set) => set.forEach(({ message }) => {
      console.log(`${message.key}\t${message.value}\t-`);
      if (--left === 0) done();
    }),
  }]),
);
await consumer.end();
