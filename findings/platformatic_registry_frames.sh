#!/usr/bin/env bash
# @platformatic/kafka 2.12.1 (JavaScript) with protobufjs 8.8.1, seen 2026-12-01: its ConfluentSchemaRegistry, which is
# experimental, writes a key with a schema in a frame, as in its documentation, and reads each key as a text, the frame
# too. It writes a tombstone as an empty value, which compaction keeps, and reads one as empty bytes. A Protobuf frame of
# it has no index of the message between the id and the message, as Confluent's format has it, and it reads none that has one.
#                                written                  read
#   Avro text "hi" as value      00 00000002 04 6869      "hi"
#   Avro text "hi" as key        00 00000002 04 6869      a text: the five bytes of the frame, the length, "hi"
#   a tombstone                  no bytes                 no bytes
#   Protobuf {id: 1, count: 2}   00 00000001 0801 1002    {id: 1, count: 2}, and with an index (00 00000001 00 0801 1002) an error
set -euo pipefail
command -v npm >/dev/null || exit 2
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
cd "$home"
npm install --silent --no-audit --no-fund --prefix . node@24.21.0 @platformatic/kafka@2.12.1 protobufjs@8.8.1 >/dev/null 2>&1 || exit 2
cat >order.proto <<'PROTO'
syntax = "proto3";
message Order {
  int64 id = 1;
  int64 count = 2;
}
PROTO
cat >registry.mjs <<'JS'
import { readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { ConfluentSchemaRegistry } from '@platformatic/kafka'

const schemas = { 1: { schemaType: 'PROTOBUF', schema: readFileSync('order.proto', 'utf8') }, 2: { schema: '"string"' } }
const server = createServer((request, response) => {
  response.setHeader('content-type', 'application/json')
  response.end(JSON.stringify(schemas[request.url.split('/').at(-1)]))
})
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
const registry = new ConfluentSchemaRegistry({ url: `http://127.0.0.1:${server.address().port}`, protobufTypeMapper: () => 'Order' })
for (const id of [1, 2]) await new Promise((resolve, reject) => registry.fetchSchema(id, (error) => error ? reject(error) : resolve()))
const write = registry.getSerializers()
const read = registry.getDeserializers()
const message = (schemas) => ({ topic: 't', metadata: { schemas } })
const attempt = (work) => {
  try {
    const found = work()
    return Buffer.isBuffer(found) ? found.toString('hex') || 'empty' : JSON.stringify(found)
  } catch (error) {
    return error.message
  }
}

const text = write.value('hi', new Map(), message({ value: 2 }))
console.log('an Avro text as value:', text.toString('hex'), 'read', attempt(() => read.value(text, new Map(), message({}))))
const key = write.key('hi', new Map(), message({ key: 2 }))
console.log('an Avro text as key:', key.toString('hex'), 'read', attempt(() => read.key(key, new Map(), message({}))))
console.log('a tombstone: written', attempt(() => write.value(undefined, new Map(), message({ value: 2 }))), 'read', attempt(() => read.value(undefined, new Map(), message({}))))
const frame = write.value({ id: 1, count: 2 }, new Map(), message({ value: 1 }))
const confluent = Buffer.concat([frame.subarray(0, 5), Buffer.from([0]), frame.subarray(5)])
for (const [name, bytes] of [['its own', frame], ["Confluent's", confluent]]) {
  console.log(`Protobuf, ${name}: ${bytes.toString('hex')} read`, attempt(() => read.value(bytes, new Map(), message({}))))
}
server.close()
JS
node_modules/.bin/node registry.mjs 2>/dev/null | tee seen
diff seen - <<'SEEN' && echo "as seen: frames without a message index, keys as texts, tombstones as empty values"
an Avro text as value: 0000000002046869 read "hi"
an Avro text as key: 0000000002046869 read "\u0000\u0000\u0000\u0000\u0002\u0004hi"
a tombstone: written empty read empty
Protobuf, its own: 000000000108011002 read {"id":"1","count":"2"}
Protobuf, Confluent's: 00000000010008011002 read illegal tag: field number 0
SEEN
