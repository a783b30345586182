#!/usr/bin/env bash
# cloudevents 2.2.0 (Python) and cloudevents 10.0.0 (JavaScript), seen 2026-12-01: an event that goes through their bindings of
# Kafka in binary mode comes back with other data. Neither writes a text as JSON, although datacontenttype is
# application/json, and both read it as JSON; Python writes a boolean as its own word. Structured mode keeps each of them.
#   data                       the record's value   Python reads   JavaScript reads
#   JSON "hello", by Python    hello                'hello'        an error: not valid JSON
#   JSON "5", by Python        5                    5, a number    5, a number
#   JSON false, by Python      False                'False'        an error: not valid JSON
#   text "", by Python         empty                None           no bytes
#   bytes ab, by Python        ab                   'ab', a text   its bytes
#   JSON "hello", JavaScript   hello                'hello'        an error: not valid JSON
#   JSON "5", JavaScript       5                    5, a number    5, a number
#   none, JavaScript           null                 None           an error: Value is null or undefined
# The extension True of Python is the header "True", for "true".
set -euo pipefail
command -v node >/dev/null && command -v npm >/dev/null || exit 2
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
cd "$home"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check cloudevents==2.2.0 || exit 2
npm install --silent --no-audit --no-fund --prefix . cloudevents@10.0.0 >/dev/null 2>&1 || exit 2
cat >write.py <<'PYTHON'
import json
import sys

from cloudevents.core.bindings import kafka
from cloudevents.core.v1.event import CloudEvent

JSON = "application/json"
needed = {"type": "t", "source": "/s", "id": "1", "specversion": "1.0"}
for kind, data in ((JSON, "hello"), (JSON, "5"), (JSON, False), ("text/plain", ""), ("application/octet-stream", b"ab")):
    event = CloudEvent(attributes=needed | {"datacontenttype": kind, "final": True}, data=data)
    assert kafka.from_kafka_event(kafka.to_structured_event(event)).get_data() == data
    message = kafka.to_binary_event(event)
    headers = {name: value.decode() for name, value in message.headers.items()}
    print(json.dumps({"name": f"Python, {kind}, {data!r}", "headers": headers, "value": message.value.decode()}))
print("Python, extension True:", headers["ce_final"], file=sys.stderr)
PYTHON
cat >write.js <<'JS'
const { CloudEvent, Kafka } = require('cloudevents')

const needed = { type: 't', source: '/s', id: '1', time: '2024-01-01T00:00:00Z' }
const json = 'application/json'
for (const attributes of [{ datacontenttype: json, data: 'hello' }, { datacontenttype: json, data: '5' }, {}]) {
  const event = new CloudEvent({ ...needed, ...attributes })
  const { headers, value } = Kafka.binary(event)
  if (Kafka.toEvent(Kafka.structured(event)).data !== attributes.data) process.exit(1)
  const name = `JavaScript, ${attributes.datacontenttype}, ${JSON.stringify(attributes.data)}`
  console.log(JSON.stringify({ name, headers, value: value ?? null }))
}
JS
cat >read.py <<'PYTHON'
import json

from cloudevents.core.bindings import kafka

for line in open("records"):
    record = json.loads(line)
    value = None if record["value"] is None else record["value"].encode()
    headers = {name: text.encode() for name, text in record["headers"].items()}
    event = kafka.from_binary_event(kafka.KafkaMessage(headers=headers, key=None, value=value))
    print(f"{record['name']}: {value}, read by Python: {event.get_data()!r}")
PYTHON
cat >read.js <<'JS'
const { Kafka } = require('cloudevents')

for (const line of require('fs').readFileSync('records', 'utf8').trim().split('\n')) {
  const { name, headers, value } = JSON.parse(line)
  let read
  try {
    const { data } = Kafka.toEvent({ headers, value: value === null ? null : Buffer.from(value) })
    read = Buffer.isBuffer(data) ? `bytes "${data}"` : JSON.stringify(data)
  } catch (problem) {
    read = problem.message.includes('JSON') ? 'not valid JSON' : problem.message
  }
  console.log(`${name}, read by JavaScript: ${read}`)
}
JS
{ venv/bin/python write.py; node write.js; } >records 2>extension
{ venv/bin/python read.py; node read.js; cat extension; } | tee seen
diff seen - <<'SEEN' && echo "as seen: binary mode changes the data of events"
Python, application/json, 'hello': b'hello', read by Python: 'hello'
Python, application/json, '5': b'5', read by Python: 5
Python, application/json, False: b'False', read by Python: 'False'
Python, text/plain, '': b'', read by Python: None
Python, application/octet-stream, b'ab': b'ab', read by Python: 'ab'
JavaScript, application/json, "hello": b'hello', read by Python: 'hello'
JavaScript, application/json, "5": b'5', read by Python: 5
JavaScript, undefined, undefined: None, read by Python: None
Python, application/json, 'hello', read by JavaScript: not valid JSON
Python, application/json, '5', read by JavaScript: 5
Python, application/json, False, read by JavaScript: not valid JSON
Python, text/plain, '', read by JavaScript: bytes ""
Python, application/octet-stream, b'ab', read by JavaScript: bytes "ab"
JavaScript, application/json, "hello", read by JavaScript: not valid JSON
JavaScript, application/json, "5", read by JavaScript: 5
JavaScript, undefined, undefined, read by JavaScript: Value is null or undefined
Python, extension True: True
SEEN
