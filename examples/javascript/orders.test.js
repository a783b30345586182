// Tests of a Kafka client in JavaScript against a broker that the tests start.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import readline from "node:readline";
import { after, before, test } from "node:test";
import kafkajs from "kafkajs";

let broker, control, kafka;

before(async () => {
  const command = process.env.MOLDAU ?? "moldau";
  const words = ["serve", "--memory", "--port", "0", "--control", "127.0.0.1:0", "--greeting", "json", "--until-eof"];
  // The broker ends when its standard input closes, also where the tests are killed.
  broker = spawn(command, words, { stdio: ["pipe", "pipe", "ignore"] });
  const [line] = await once(readline.createInterface({ input: broker.stdout }), "line");
  const greeting = JSON.parse(line);
  control = greeting.control;
  kafka = new kafkajs.Kafka({
    brokers: [greeting.listeners.PLAINTEXT],
    logLevel: kafkajs.logLevel.NOTHING,
    retry: { initialRetryTime: 50 },
  });
});

after(async () => {
  broker.stdin.end();
  await once(broker, "exit");
});

async function fault(described) {
  const headers = { "Content-Type": "application/json" };
  const answer = await fetch(`${control}/v1/faults`, { method: "POST", headers, body: JSON.stringify(described) });
  assert.equal(answer.status, 200, await answer.text());
}

test("an order is read", async () => {
  const producer = kafka.producer();
  await producer.connect();
  await producer.send({ topic: "orders", messages: [{ value: "three rolls" }] });
  await producer.disconnect();
  const consumer = kafka.consumer({ groupId: "kitchen" });
  await consumer.connect();
  await consumer.subscribe({ topic: "orders", fromBeginning: true });
  const read = new Promise((resolve) =>
    consumer.run({ eachMessage: async ({ message }) => resolve(message.value.toString()) }));
  assert.equal(await read, "three rolls");
  await consumer.disconnect();
});

test("a producer tries again where the leader has moved", async () => {
  const producer = kafka.producer();
  await producer.connect();
  await producer.send({ topic: "retried", messages: [{ value: "first" }] });
  const scope = { api: "Produce", topic: "retried" };
  await fault({ scope, when: { times: 2 }, do: { error: "NOT_LEADER_OR_FOLLOWER" } });
  const [{ baseOffset }] = await producer.send({ topic: "retried", messages: [{ value: "x" }] });
  assert.equal(baseOffset, "1");
  await producer.disconnect();
});
