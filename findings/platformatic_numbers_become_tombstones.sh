#!/usr/bin/env bash
# @platformatic/kafka 2.12.1 beside kafkajs 2.2.4 (Node 24) with Apache Kafka 4.3.1, seen 2026-12-01: a producer with its stringSerializers,
# as in its introduction, writes null for a value that is not a text, without an error: a number, a boolean or an object is a
# tombstone, which deletes its key from a compacted topic and its row from a sink. A key that is a number is null, and such
# a record is of no key. kafkajs refuses each of them.
#   key, value       @platformatic/kafka   kafkajs
#   "text", "a"      text, a               text, a
#   "number", 42     number, null          refused
#   "boolean", true  boolean, null         refused
#   "object", {a: 1} object, null          refused
#   7, "b"           null, b               refused
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

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

servers = {"bootstrap.servers": sys.argv[1], "log_level": 0}
topics = ("platformatic", "kafkajs")
if sys.argv[2] == "create":
    admin = AdminClient(servers)
    for created in admin.create_topics([NewTopic(each, 1, 1) for each in topics], request_timeout=300).values():
        created.result(300)
else:
    consumer = Consumer(servers | {"group.id": "look", "enable.partition.eof": True})
    for topic in topics:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while not (message := consumer.poll(60)).error():
            print(topic + ":", message.key(), message.value())
PYTHON
cat >write.mjs <<'JS'
import { Producer, stringSerializers } from '@platformatic/kafka'
import kafkajs from 'kafkajs'

const address = process.argv[2]
const messages = [['text', 'a'], ['number', 42], ['boolean', true], ['object', { a: 1 }], [7, 'b']]
const producer = new Producer({ clientId: 'p', bootstrapBrokers: [address], serializers: stringSerializers })
const other = new kafkajs.Kafka({ brokers: [address], logLevel: 0 }).producer({ createPartitioner: kafkajs.Partitioners.DefaultPartitioner })
await other.connect()
for (const [key, value] of messages) {
  await producer.send({ messages: [{ topic: 'platformatic', key, value }] })
    .catch((problem) => console.log('platformatic refuses', key, String(value) + ':', problem.message))
  await other.send({ topic: 'kafkajs', messages: [{ key, value }] })
    .catch((problem) => console.log('kafkajs refuses', key, String(value) + ':', problem.message.split('.')[0]))
}
process.exit(0)
JS
venv/bin/python topics.py "127.0.0.1:$port" create || exit 2
{
    timeout 120 node_modules/.bin/node write.mjs "127.0.0.1:$port" 2>/dev/null
    venv/bin/python topics.py "127.0.0.1:$port" read
} | tee seen
diff seen - <<'SEEN' && echo "as seen: a value that is no text becomes a tombstone"
kafkajs refuses number 42: The "string" argument must be of type string or an instance of Buffer or ArrayBuffer
kafkajs refuses boolean true: The "string" argument must be of type string or an instance of Buffer or ArrayBuffer
kafkajs refuses object [object Object]: The "string" argument must be of type string or an instance of Buffer or ArrayBuffer
kafkajs refuses 7 b: The "string" argument must be of type string or an instance of Buffer or ArrayBuffer
platformatic: b'text' b'a'
platformatic: b'number' None
platformatic: b'boolean' None
platformatic: b'object' None
platformatic: None b'b'
kafkajs: b'text' b'a'
SEEN
