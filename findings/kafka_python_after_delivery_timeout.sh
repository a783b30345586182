#!/usr/bin/env bash
# kafka-python 3.0.12 with Apache Kafka 4.3.1, seen 2026-11-29: after one record of an idempotent producer (its default)
# has passed delivery_timeout_ms while the broker stood still, no later record of that producer is delivered, although
# the broker answers again; nor does delivery_timeout_ms end these records. A producer without idempotence goes on.
#   idempotent:  the record in the pause: expired; three records after it: not delivered in 15 s each
#   plain:       the record in the pause: expired; three records after it: delivered
set -euo pipefail
command -v java >/dev/null && command -v mvn >/dev/null || exit 2
home=$(mktemp -d)
trap 'kill -9 "$(cat "$home/pid" 2>/dev/null)" 2>/dev/null; rm -rf "$home"' EXIT
cd "$home"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check kafka-python==3.0.12 || exit 2
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
PROPERTIES
java -cp 'lib/*' kafka.tools.StorageTool format --standalone -t AAAAAAAAAAAAAAAAAAAAAQ -c server.properties >format.log 2>&1
java -Xmx512m -cp 'lib/*' kafka.Kafka server.properties >server.log 2>&1 &
echo $! >pid
venv/bin/python - "$port" "$(cat pid)" <<'PYTHON'
import os
import signal
import sys
import time

from kafka import KafkaProducer
from kafka.errors import KafkaError

port, pid = map(int, sys.argv[1:])


def delivered(future, seconds):
    try:
        future.get(seconds)
    except KafkaError:
        return False
    return True


def producer(is_idempotent):
    until = time.monotonic() + 120
    while True:
        try:
            return KafkaProducer(
                bootstrap_servers=f"127.0.0.1:{port}",
                enable_idempotence=is_idempotent,
                delivery_timeout_ms=6000,
                request_timeout_ms=2000,
            )
        except KafkaError:
            if time.monotonic() > until:
                sys.exit(2)


seen = {}
for is_idempotent in (True, False):
    made = producer(is_idempotent)
    topic = f"paused-{is_idempotent}"
    until = time.monotonic() + 120
    while not delivered(made.send(topic, b"before"), 15):
        if time.monotonic() > until:
            sys.exit(2)
    os.kill(pid, signal.SIGSTOP)
    paused = delivered(made.send(topic, b"in the pause"), 20)
    os.kill(pid, signal.SIGCONT)
    time.sleep(5)
    seen[is_idempotent] = [paused, *(delivered(made.send(topic, b"after"), 15) for _ in range(3))]
    print("idempotent: " if is_idempotent else "plain:      ", seen[is_idempotent], flush=True)
    sys.stdout.flush()
os._exit(0 if seen == {True: [False] * 4, False: [False, True, True, True]} else 1)
PYTHON
