#!/usr/bin/env bash
# kafkajs 2.2.4 and @platformatic/kafka 2.12.1 (Node 24) with Apache Kafka 4.3.1, seen 2026-11-30: a program that reads records
# and writes what it has read, headers too, writes other headers. Kafka's headers are a list, in which a key may be twice
# and a value may be null (a trace, the hops of a mirror); kafkajs reads them into an object, and @platformatic/kafka with
# stringDeserializers, as in its introduction, into a map of texts:
#   headers of the record   kafkajs               @platformatic/kafka, strings   @platformatic/kafka, bytes
#   a=1 b=2 a=3             a=1 a=3 b=2           a=3 b=2: the first a is lost    as they were
#   2=two 1=one             1=one 2=two           as they were                    as they were
#   n=null                  refuses to write it   as they were                    as they were
set -euo pipefail
command -v java >/dev/null && command -v mvn >/dev/null && command -v npm >/dev/null || exit 2
home=$(mktemp -d)
trap 'kill -9 "$(cat "$home/pid" 2>/dev/null)" 2>/dev/null; rm -rf "$home"' EXIT
cd "$home"
cat >pom.xml <<'XML'
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>finding</groupId><artifactId>kafka</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>4.3.1</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>4.3.1</version></dependency>
  </dependencies>
</project>
XML
mvn -q -B dependency:copy-dependencies -DoutputDirectory=lib || exit 2
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check confluent-kafka==2.16.1 || exit 2
npm install --silent --no-audit --no-fund --prefix . node@24.21.0 @platformatic/kafka@2.12.1 kafkajs@2.2.4 >/dev/null 2>&1 || exit 2
read -r port controller < <(python3 -c '
import socket
free = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
print(*(each.getsockname()[1] for each in free))')
cat >server.properties <<PROPERTIES
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:$controller
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$controller
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs=$home/data
offsets.topic.replication.factor=1
PROPERTIES
java -cp 'lib/*' kafka.tools.StorageTool format --standalone -t AAAAAAAAAAAAAAAAAAAAAQ -c server.properties >format.log 2>&1
java -Xmx512m -cp 'lib/*' kafka.Kafka server.properties >server.log 2>&1 &
echo $! >pid
cat >topics.py <<'PYTHON'
import sys

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

servers = {"bootstrap.servers": sys.argv[1], "log_level": 0}
copies = ("kafkajs", "strings", "bytes")
if sys.argv[2] == "write":
    admin = AdminClient(servers)
    for created in admin.create_topics([NewTopic(each, 1, 1) for each in ("original", *copies)], request_timeout=300).values():
        created.result(300)
    producer = Producer(servers)
    for headers in ([("a", "1"), ("b", "2"), ("a", "3")], [("2", "two"), ("1", "one")], [("n", None)]):
        producer.produce("original", "value", headers=headers)
    producer.flush()
else:
    consumer = Consumer(servers | {"group.id": "look", "enable.partition.eof": True})
    for topic in ("original", *copies):
        consumer.assign([TopicPartition(topic, 0, 0)])
        while not (message := consumer.poll(60)).error():
            print(topic + ":", *(f"{key}={value.decode() if value is not None else 'null'}" for key, value in message.headers()))
PYTHON
cat >copy.mjs <<'JS'
import { Consumer, Producer, stringDeserializers, stringSerializers } from '@platformatic/kafka'
import kafkajs from 'kafkajs'

const address = process.argv[2]
const count = 3
for (const [topic, deserializers, serializers] of [['strings', stringDeserializers, stringSerializers], ['bytes']]) {
  const base = { clientId: topic, bootstrapBrokers: [address] }
  const consumer = new Consumer({ ...base, groupId: topic, ...(deserializers && { deserializers }) })
  const producer = new Producer({ ...base, ...(serializers && { serializers }) })
  let copied = 0
  for await (const { key, value, headers, timestamp } of await consumer.consume({ topics: ['original'], mode: 'earliest' })) {
    await producer.send({ messages: [{ topic, key, value, headers, timestamp }] })
    if (++copied === count) break
  }
}
const kafka = new kafkajs.Kafka({ brokers: [address], logLevel: 0 })
const producer = kafka.producer()
const consumer = kafka.consumer({ groupId: 'kafkajs' })
await producer.connect()
await consumer.connect()
await consumer.subscribe({ topics: ['original'], fromBeginning: true })
let copied = 0
await consumer.run({
  eachMessage: async ({ message: { key, value, headers, timestamp } }) => {
    await producer.send({ topic: 'kafkajs', messages: [{ key, value, headers, timestamp }] })
      .catch((problem) => console.log('kafkajs refuses:', problem.message.split('.')[0]))
    if (++copied === count) process.exit(0)
  }
})
JS
venv/bin/python topics.py "127.0.0.1:$port" write || exit 2
{
    timeout 120 node_modules/.bin/node copy.mjs "127.0.0.1:$port" 2>/dev/null
    venv/bin/python topics.py "127.0.0.1:$port" read
} | tee seen
diff seen - <<'SEEN' && echo "as seen: the copies have other headers"
kafkajs refuses: The "string" argument must be of type string or an instance of Buffer or ArrayBuffer
original: a=1 b=2 a=3
original: 2=two 1=one
original: n=null
kafkajs: a=1 a=3 b=2
kafkajs: 1=one 2=two
strings: a=3 b=2
strings: 2=two 1=one
strings: n=null
bytes: a=1 b=2 a=3
bytes: 2=two 1=one
bytes: n=null
SEEN
