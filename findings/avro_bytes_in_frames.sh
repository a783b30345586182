#!/usr/bin/env bash
# confluent-kafka 2.16.1, @confluentinc/schemaregistry 1.10.1 and @kafkajs/confluent-schema-registry 4.1.0, seen 2026-11-30:
# a value whose schema is "bytes" itself has two forms after the five bytes of the frame. The specification of Avro puts a
# length before the bytes, and kafkajs' library does; Confluent's clients write and read them without one. Each takes the
# other's values for other bytes, without an error if the first byte is the right length by chance:
#   value    Confluent's (Python, JavaScript)  kafkajs'   Confluent's value read by kafkajs', and the other way
#   "x"      78                                02 78      an error;  02 78
#   04 61 62 04 61 62                          06 04 61 62  61 62;   06 04 61 62
# In a record or a union all write the length. An empty value of Confluent's is a frame of five bytes, as is a record
# without fields; the one in Python writes both, and refuses to read both:
#   Expecting data framing of length 6 bytes or more but total data size is 5 bytes
set -euo pipefail
command -v node >/dev/null && command -v npm >/dev/null || exit 2
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
cd "$home"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check 'confluent-kafka[schemaregistry,avro]==2.16.1' || exit 2
npm install --silent --no-audit --no-fund --prefix . @confluentinc/schemaregistry@1.10.1 \
    @kafkajs/confluent-schema-registry@4.1.0 >/dev/null 2>&1 || exit 2
cat >confluent.py <<'PYTHON'
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext, SerializationError

client = SchemaRegistryClient.new_client({"url": "mock://registry"})
context = SerializationContext("topic", MessageField.VALUE)
read = AvroDeserializer(client)


def tell(frame):
    try:
        found = read(frame, context)
    except SerializationError as problem:
        return str(problem).split(".")[0]
    return found.hex(" ") if isinstance(found, bytes) else found


for schema, values in (('"bytes"', (b"x", b"\4ab", b"")), ('{"type": "record", "name": "Ping", "fields": []}', ({},))):
    write = AvroSerializer(client, schema)
    for value in values:
        frame = write(value, context)
        print("Python:", value, "->", frame[5:].hex(" "), "->", tell(frame))
    if schema == '"bytes"':
        for payload in ("02 78", "06 04 61 62"):
            print("Python, of kafkajs:", payload, "->", tell(frame[:5] + bytes.fromhex(payload)))
PYTHON
cat >registry.js <<'JS'
const http = require('http')
const confluent = require('@confluentinc/schemaregistry')
const kafkajs = require('@kafkajs/confluent-schema-registry')

const hex = (bytes) => bytes.toString('hex').replace(/(..)(?!$)/g, '$1 ')
const values = [Buffer.from('x'), Buffer.from('\x04ab')]

async function main(address) {
  const client = confluent.SchemaRegistryClient.newClient({ baseURLs: ['mock://registry'], cacheCapacity: 9 })
  await client.register('topic-value', { schemaType: 'AVRO', schema: '"bytes"' })
  const kind = confluent.SerdeType.VALUE
  const options = { useLatestVersion: true, subjectNameStrategyType: 'TOPIC' }
  const written = []
  for (const value of values) {
    const frame = await new confluent.AvroSerializer(client, kind, options).serialize('topic', value)
    written.push(frame)
    const read = await new confluent.AvroDeserializer(client, kind, {}).deserialize('topic', frame)
    console.log('JavaScript:', hex(value), '->', hex(frame.subarray(5)), '->', hex(read))
  }
  const other = new kafkajs.SchemaRegistry({ host: address })
  for (const value of values) {
    const frame = await other.encode(1, value)
    console.log('kafkajs:', hex(value), '->', hex(frame.subarray(5)), '->', hex(await other.decode(frame)))
  }
  for (const frame of written) {
    const read = await other.decode(frame).then(hex, (problem) => problem.message)
    console.log('kafkajs, of JavaScript:', hex(frame.subarray(5)), '->', read)
  }
  process.exit(0)
}

const server = http.createServer((_, response) => {
  response.setHeader('content-type', 'application/json')
  response.end(JSON.stringify({ schema: '"bytes"' }))
})
server.listen(0, '127.0.0.1', () => main(`http://127.0.0.1:${server.address().port}`))
JS
{ venv/bin/python confluent.py; node registry.js; } | tee seen
diff seen - <<'SEEN' && echo "as seen: bytes have a length or none"
Python: b'x' -> 78 -> 78
Python: b'\x04ab' -> 04 61 62 -> 04 61 62
Python: b'' ->  -> Expecting data framing of length 6 bytes or more but total data size is 5 bytes
Python, of kafkajs: 02 78 -> 02 78
Python, of kafkajs: 06 04 61 62 -> 06 04 61 62
Python: {} ->  -> Expecting data framing of length 6 bytes or more but total data size is 5 bytes
JavaScript: 78 -> 78 -> 78
JavaScript: 04 61 62 -> 04 61 62 -> 04 61 62
kafkajs: 78 -> 02 78 -> 78
kafkajs: 04 61 62 -> 06 04 61 62 -> 04 61 62
kafkajs, of JavaScript: 78 -> truncated buffer
kafkajs, of JavaScript: 04 61 62 -> 61 62
SEEN
