'use strict'
// One login of kafkajs: `login.js BOOTSTRAP SECURITY`, where SECURITY is JSON.
//
// It sends one record and reads it back. It prints `ok`, or the kind of refusal that the application sees.

const fs = require('fs')
const { Kafka, logLevel } = require('kafkajs')

const TOPIC = 'logins'
const PATIENCE_MS = 20000
const [SERVED, REFUSED, OTHER] = ['ok', 'refused', 'no answer']

function bearer() {
  const encode = value => Buffer.from(JSON.stringify(value)).toString('base64url')
  const now = Math.floor(Date.now() / 1000)
  return `${encode({ alg: 'none' })}.${encode({ sub: 'bearer', iat: now, exp: now + 600 })}.`
}

function sasl({ mechanism, user, password }) {
  if (mechanism === undefined) return undefined
  const name = mechanism.toLowerCase()
  if (name === 'oauthbearer') return { mechanism: name, oauthBearerProvider: async () => ({ value: bearer() }) }
  return { mechanism: name, username: user, password }
}

function kafka(bootstrap, security) {
  const ssl = { ca: [fs.readFileSync(security.ca, 'utf8')] }
  if (security.certificate !== undefined) ssl.cert = ssl.key = fs.readFileSync(security.certificate, 'utf8')
  return new Kafka({
    clientId: 'logins', brokers: [bootstrap], logLevel: logLevel.NOTHING, ssl, sasl: sasl(security),
    connectionTimeout: 10000, requestTimeout: PATIENCE_MS, retry: { retries: 2 },
  })
}

async function readBack(client) {
  const consumer = client.consumer({ groupId: 'kafkajs' })
  await consumer.connect()
  await consumer.subscribe({ topic: TOPIC, fromBeginning: true })
  const read = await new Promise(resolve => {
    setTimeout(() => resolve(false), PATIENCE_MS).unref()
    consumer.run({ eachMessage: async () => resolve(true) })
  })
  await consumer.disconnect()
  return read
}

async function story(bootstrap, security) {
  const client = kafka(bootstrap, security)
  const producer = client.producer()
  await producer.connect()
  await producer.send({ topic: TOPIC, messages: [{ value: 'record', partition: 0 }] })
  const read = await readBack(client)
  await producer.disconnect()
  return read ? SERVED : OTHER
}

function outcome(error) {
  for (let each = error; each; each = each.cause) {
    if (each.name === 'KafkaJSSASLAuthenticationError') return REFUSED
  }
  process.stderr.write(`${error.stack}\n`)
  return OTHER
}

story(process.argv[2], JSON.parse(process.argv[3])).catch(outcome).then(said => {
  process.stdout.write(`${said}\n`, () => process.exit(0))
})
