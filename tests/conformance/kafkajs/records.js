'use strict'
// Records as the JSON that every driver speaks.

const text = bytes => (bytes === null || bytes === undefined ? null : Buffer.from(bytes).toString('base64'))
const bytes = wire => (wire === null ? null : Buffer.from(wire, 'base64'))

function headersOf(message) {
  const pairs = []
  for (const [name, value] of Object.entries(message.headers || {})) {
    for (const each of Array.isArray(value) ? value : [value]) pairs.push([name, text(each)])
  }
  return pairs
}

function wireOf(partition, message) {
  return {
    k: text(message.key), v: text(message.value), h: headersOf(message),
    t: Number(message.timestamp), p: partition, o: Number(message.offset),
  }
}

function messageOf(wire) {
  const message = { key: bytes(wire.k), value: bytes(wire.v), partition: wire.p, headers: {} }
  for (const [name, value] of wire.h) message.headers[name] = bytes(value)
  if (wire.t !== null) message.timestamp = String(wire.t)
  return message
}

module.exports = { messageOf, wireOf }
