#!/usr/bin/env bash
# franz-go 1.22.3, sarama 1.61.1 and segmentio/kafka-go 0.4.51 with Apache Kafka 4.3.1, seen 2026-11-30: a program that reads
# records and writes what it has read (key, value, time), as a mirror does, writes other records, without an error. Kafka
# takes any 64 bits as milliseconds, and a topic of microseconds (message.timestamp.after.max.ms) is one mistake away.
#   record                  franz-go        sarama           segmentio
#   empty key               as it was       as it was        null
#   empty value             as it was       as it was        null: a tombstone, which deletes its key
#   time 0                  as it was       as it was        the time of the copy
#   time -1 or -1000        as it was       the time of the copy, in both
#   time 253402300800000    -4852116231934  -4852116231933   -4852116231933: the year 10000 is 1816
#   time 1700000000000000   2899545218721   2899545218721    2899545218721: the year 2061
# franz-go also reads the last two as these times; the other two read them as they are.
set -euo pipefail
command -v java >/dev/null && command -v mvn >/dev/null && command -v go >/dev/null || exit 2
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
venv/bin/pip install -q --disable-pip-version-check kafka-python==3.0.12 || exit 2
go mod init copies >/dev/null 2>&1
go get github.com/twmb/franz-go/pkg/kgo@v1.22.3 github.com/IBM/sarama@v1.61.1 \
    github.com/segmentio/kafka-go@v0.4.51 >/dev/null 2>&1 || exit 2
cat >main.go <<'GO'
package main

import (
	"context"
	"os"
	"time"

	"github.com/IBM/sarama"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"
)

const count = 8

func try(err error) {
	if err != nil {
		println(err.Error())
		os.Exit(2)
	}
}

func main() {
	address := os.Args[1]
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	whole := map[string]map[int32]kgo.Offset{"original": {0: kgo.NewOffset().At(0)}}
	client, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.ConsumePartitions(whole))
	try(err)
	for copied := 0; copied < count; {
		fetched := client.PollFetches(ctx)
		try(fetched.Err())
		for _, read := range fetched.Records() {
			copy := &kgo.Record{Topic: "franz-go", Key: read.Key, Value: read.Value, Timestamp: read.Timestamp}
			try(client.ProduceSync(ctx, copy).FirstErr())
			copied++
		}
	}

	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Producer.Return.Successes = true
	consumer, err := sarama.NewConsumer([]string{address}, config)
	try(err)
	partition, err := consumer.ConsumePartition("original", 0, 0)
	try(err)
	producer, err := sarama.NewSyncProducer([]string{address}, config)
	try(err)
	for range count {
		read := <-partition.Messages()
		_, _, err = producer.SendMessage(&sarama.ProducerMessage{Topic: "sarama", Key: sarama.ByteEncoder(read.Key),
			Value: sarama.ByteEncoder(read.Value), Timestamp: read.Timestamp})
		try(err)
	}

	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{address}, Topic: "original"})
	writer := kafka.Writer{Addr: kafka.TCP(address), Topic: "segmentio", BatchSize: 1}
	for range count {
		read, err := reader.ReadMessage(ctx)
		try(err)
		try(writer.WriteMessages(ctx, kafka.Message{Key: read.Key, Value: read.Value, Time: read.Time}))
	}
}
GO
go build -o copies . || exit 2
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
log.retention.ms=-1
log.message.timestamp.after.max.ms=9223372036854775807
PROPERTIES
java -cp 'lib/*' kafka.tools.StorageTool format --standalone -t AAAAAAAAAAAAAAAAAAAAAQ -c server.properties >format.log 2>&1
java -Xmx512m -cp 'lib/*' kafka.Kafka server.properties >server.log 2>&1 &
echo $! >pid
cat >original.py <<'PYTHON'
import sys
import time

from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic
from kafka.errors import KafkaError

until = time.monotonic() + 300
while True:
    try:
        admin = KafkaAdminClient(bootstrap_servers=sys.argv[1])
        admin.create_topics([NewTopic(name, 1, 1) for name in ("original", "franz-go", "sarama", "segmentio")])
        break
    except KafkaError:
        if time.monotonic() > until:
            sys.exit(2)
producer = KafkaProducer(bootstrap_servers=sys.argv[1])
today = 1750000000000
rows = [(b"", b"v", today), (b"k", b"", today)]
rows += [(b"k", b"v", each) for each in (today, 0, -1, -1000, 253402300800000, 1700000000000000)]
for key, value, timestamp_ms in rows:
    producer.send("original", value, key, timestamp_ms=timestamp_ms).get(30)
PYTHON
venv/bin/python original.py "127.0.0.1:$port" || exit 2
./copies "127.0.0.1:$port" || exit 2
for topic in original franz-go sarama segmentio; do
    java -cp 'lib/*' org.apache.kafka.tools.DumpLogSegments --print-data-log --files "$(ls data/$topic-0/*.log | paste -sd,)" 2>/dev/null |
        python3 -c '
import re, sys, time
row = []
for time_ms, key, value in re.findall(r"\| offset: \d+ CreateTime: (-?\d+) keySize: (-?\d+) valueSize: (-?\d+)", sys.stdin.read()):
    is_now = abs(int(time_ms) / 1000 - time.time()) < 600
    row.append("now" if is_now else "empty key" if key == "0" else "empty value" if value == "0" else
               "null key" if key == "-1" else "null value" if value == "-1" else time_ms)
print(sys.argv[1] + ":", ", ".join(row))' "$topic"
done | tee seen
diff seen - <<'SEEN' && echo "as seen: the copies differ"
original: empty key, empty value, 1750000000000, 0, -1, -1000, 253402300800000, 1700000000000000
franz-go: empty key, empty value, 1750000000000, 0, -1, -1000, -4852116231934, 2899545218721
sarama: empty key, empty value, 1750000000000, 0, now, now, -4852116231933, 2899545218721
segmentio: null key, null value, 1750000000000, now, now, now, -4852116231933, 2899545218721
SEEN
