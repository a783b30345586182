#!/usr/bin/env bash
# @platformatic/kafka 2.12.1 (Node 24) and segmentio/kafka-go 0.4.51 with Apache Kafka 4.3.1, seen 2026-11-30: consumers that ask
# for read_committed are given records of aborted transactions, without an error. It meets readers of topics that a
# transactional producer or Kafka Streams writes.
#   @platformatic/kafka (read_committed is its default): of several transactions of one producer that a fetch has, only the
#     last aborted one is left out; and one whose end is in a later fetch (longer than maxBytes) is given whole.
#   segmentio/kafka-go (IsolationLevel: ReadCommitted): each aborted record is given, and each end of a transaction as
#     a message, whose key and value are bytes of Kafka's own.
#   two aborted, then committed   @platformatic/kafka: a1 c1      segmentio: a1 ABORT a2 ABORT c1 COMMIT
#   one aborted, fetched in parts @platformatic/kafka: a3 a4 c2   segmentio: a3 a4 ABORT c2 COMMIT
# Both should be "c1" and "c2", as kafkajs 2.2.4, franz-go 1.22.3, sarama 1.61.1, kafka-python 3.0.12 and aiokafka 0.14.0 read.
set -euo pipefail
command -v java >/dev/null && command -v mvn >/dev/null && command -v go >/dev/null && command -v npm >/dev/null || exit 2
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
npm install --silent --no-audit --no-fund --prefix . node@24.21.0 @platformatic/kafka@2.12.1 >/dev/null 2>&1 || exit 2
go mod init read >/dev/null 2>&1
go get github.com/segmentio/kafka-go@v0.4.51 >/dev/null 2>&1 || exit 2
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
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
PROPERTIES
java -cp 'lib/*' kafka.tools.StorageTool format --standalone -t AAAAAAAAAAAAAAAAAAAAAQ -c server.properties >format.log 2>&1
java -Xmx512m -cp 'lib/*' kafka.Kafka server.properties >server.log 2>&1 &
echo $! >pid
cat >write.py <<'PYTHON'
import sys

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

names = {"two": ("a1", "a2", "c1"), "parts": ("a3 a4", "c2")}
servers = {"bootstrap.servers": sys.argv[1], "log_level": 0}
admin = AdminClient(servers)
for created in admin.create_topics([NewTopic(name, 1, 1) for name in names], request_timeout=300).values():
    created.result(300)
for name, transactions in names.items():
    producer = Producer(servers | {"transactional.id": name})
    producer.init_transactions(300)
    for values in transactions:
        producer.begin_transaction()
        for value in values.split():
            producer.produce(name, value)
            producer.flush()  # a batch for each record
        producer.commit_transaction() if values.startswith("c") else producer.abort_transaction()
PYTHON
cat >read.mjs <<'JS'
import { Consumer } from '@platformatic/kafka'

for (const [topic, last, settings] of [['two', 'c1', {}], ['parts', 'c2', { maxBytes: 1 }]]) {
  const consumer = new Consumer({ groupId: topic, clientId: topic, bootstrapBrokers: [process.argv[2]] })
  const values = []
  const stream = await consumer.consume({ topics: [topic], mode: 'earliest', autocommit: false, ...settings })
  for await (const message of stream) {
    values.push(message.value.toString())
    if (values.at(-1) === last) break
  }
  console.log('@platformatic/kafka', topic + ':', values.join(' '))
}
process.exit(0)
JS
cat >main.go <<'GO'
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/segmentio/kafka-go"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ends := map[string]string{"\x00\x00\x00\x00": "ABORT", "\x00\x00\x00\x01": "COMMIT"}
	for _, topic := range []string{"two", "parts"} {
		reader := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{os.Args[1]}, Topic: topic, IsolationLevel: kafka.ReadCommitted})
		fmt.Print("segmentio ", topic, ":")
		for end := ""; end != "COMMIT"; {
			message, err := reader.ReadMessage(ctx)
			if err != nil {
				fmt.Print(" ", err)
				break
			}
			if end = ends[string(message.Key)]; end != "" {
				fmt.Print(" ", end)
			} else {
				fmt.Print(" ", string(message.Value))
			}
		}
		fmt.Println()
	}
}
GO
go build -o reader . || exit 2
venv/bin/python write.py "127.0.0.1:$port" || exit 2
{ timeout 120 node_modules/.bin/node read.mjs "127.0.0.1:$port" 2>/dev/null; ./reader "127.0.0.1:$port"; } | tee seen
diff seen - <<'SEEN' && echo "as seen: read_committed gives records of aborted transactions"
@platformatic/kafka two: a1 c1
@platformatic/kafka parts: a3 a4 c2
segmentio two: a1 ABORT a2 ABORT c1 COMMIT
segmentio parts: a3 a4 ABORT c2 COMMIT
SEEN
