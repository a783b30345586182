#!/usr/bin/env bash
# @platformatic/kafka 2.12.1 (JavaScript) beside Apache Kafka's client 4.3.1, kafkajs 2.2.4 and aiokafka 0.14.0, seen 2026-12-01: its
# default partitioner is murmur2 as in Java, but a negative hash keeps its highest bit (>>> 0), which Java clears. Both agree if
# the number of partitions is a power of two; in a topic with 12 about half of the keys go to another partition. The records of
# one key, of a Java service and a JavaScript one, are in two partitions: out of order, compacted apart, not joined. Its
# compatibilityPartitioner, which its documentation of the producer does not name, writes them where Java does.
#   of 1000 keys, where Java writes them      8 partitions   12 partitions
#   kafkajs, aiokafka                         1000           1000
#   @platformatic/kafka                       1000           541
#   the same, compatibilityPartitioner        1000           1000
set -euo pipefail
command -v java >/dev/null && command -v mvn >/dev/null && command -v npm >/dev/null || exit 2
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
cd "$home"
cat >pom.xml <<'XML'
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
  <groupId>x</groupId><artifactId>x</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>org.apache.kafka</groupId><artifactId>kafka-clients</artifactId><version>4.3.1</version>
  </dependency></dependencies>
</project>
XML
mvn -q dependency:copy-dependencies -DoutputDirectory=lib >/dev/null || exit 2
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check aiokafka==0.14.0 || exit 2
npm install --silent --no-audit --no-fund --prefix . node@24.21.0 @platformatic/kafka@2.12.1 kafkajs@2.2.4 >/dev/null 2>&1 || exit 2
cat >Java.java <<'JAVA'
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;

public class Java {
    public static void main(String[] arguments) {
        for (int partitions : new int[] {8, 12})
            for (int place = 0; place < 1000; place++)
                System.out.println(BuiltInPartitioner.partitionForKey(("key-" + place).getBytes(), partitions));
    }
}
JAVA
java -cp 'lib/*' Java.java >java.txt 2>/dev/null
cat >python.py <<'PYTHON'
from aiokafka.partitioner import DefaultPartitioner

java = [int(line) for line in open("java.txt")]
partitioner = DefaultPartitioner()
for start, count in ((0, 8), (1000, 12)):
    ids = list(range(count))
    same = sum(partitioner(b"key-%d" % place, ids, ids) == java[start + place] for place in range(1000))
    print(f"aiokafka, {count} partitions: {same} of 1000 keys are where Java writes them")
PYTHON
cat >node.mjs <<'JS'
import { readFileSync } from 'node:fs'
import { compatibilityPartitioner, defaultPartitioner } from '@platformatic/kafka'
import kafkajs from 'kafkajs'

const java = readFileSync('java.txt', 'utf8').trim().split('\n').map(Number)
const byKafkajs = kafkajs.Partitioners.DefaultPartitioner()
for (const [name, partitioner] of [
  ['kafkajs', (key, ids) => byKafkajs({ topic: 't', partitionMetadata: ids, message: { key } })],
  ['@platformatic/kafka', (key, ids) => defaultPartitioner({}, key) % ids.length],
  ['@platformatic/kafka, compatibilityPartitioner', (key, ids) => compatibilityPartitioner({}, key) % ids.length]
]) {
  for (const [start, count] of [[0, 8], [1000, 12]]) {
    const ids = Array.from({ length: count }, (_, partitionId) => ({ partitionId, leader: 1 }))
    let same = 0
    for (let place = 0; place < 1000; place++) {
      if (partitioner(Buffer.from('key-' + place), ids) === java[start + place]) same++
    }
    console.log(`${name}, ${count} partitions: ${same} of 1000 keys are where Java writes them`)
  }
}
JS
{ venv/bin/python python.py && KAFKAJS_NO_PARTITIONER_WARNING=1 node_modules/.bin/node node.mjs 2>/dev/null; } | tee seen
diff seen - <<'SEEN' && echo "as seen: half of the keys are in other partitions"
aiokafka, 8 partitions: 1000 of 1000 keys are where Java writes them
aiokafka, 12 partitions: 1000 of 1000 keys are where Java writes them
kafkajs, 8 partitions: 1000 of 1000 keys are where Java writes them
kafkajs, 12 partitions: 1000 of 1000 keys are where Java writes them
@platformatic/kafka, 8 partitions: 1000 of 1000 keys are where Java writes them
@platformatic/kafka, 12 partitions: 541 of 1000 keys are where Java writes them
@platformatic/kafka, compatibilityPartitioner, 8 partitions: 1000 of 1000 keys are where Java writes them
@platformatic/kafka, compatibilityPartitioner, 12 partitions: 1000 of 1000 keys are where Java writes them
SEEN
