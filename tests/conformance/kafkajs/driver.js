'use strict'
// kafkajs as a driver: one operation a line on stdin, one answer a line on stdout.

const readline = require('readline')
const { Kafka, CompressionTypes, CompressionCodecs, PartitionAssigners, logLevel, ConfigResourceTypes } = require('kafkajs')
const SnappyCodec = require('kafkajs-snappy')
const LZ4 = require('kafkajs-lz4')
const zstd = require('@bokuweb/zstd-wasm')
const { messageOf, wireOf } = require('./records')
const transactions = require('./transactions')

CompressionCodecs[CompressionTypes.Snappy] = SnappyCodec
CompressionCodecs[CompressionTypes.LZ4] = new LZ4().codec
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => Buffer.from(zstd.compress(encoder.buffer, 3)),
  decompress: async buffer => Buffer.from(zstd.decompress(buffer)),
})

const CODECS = {
  none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4, zstd: CompressionTypes.ZSTD,
}
const SOURCES = {
  1: 'DYNAMIC_TOPIC_CONFIG', 2: 'DYNAMIC_BROKER_CONFIG', 3: 'DYNAMIC_DEFAULT_BROKER_CONFIG',
  4: 'STATIC_BROKER_CONFIG', 5: 'DEFAULT_CONFIG',
}

const bootstrap = process.argv[2]
const kafka = new Kafka({
  clientId: 'conformance', brokers: bootstrap.split(','), logLevel: logLevel.NOTHING, requestTimeout: 30000,
  retry: { retries: 8, initialRetryTime: 100 },
})

class Unavailable extends Error {}

let started = null
async function admin() {
  if (started === null) {
    started = kafka.admin()
    await started.connect()
  }
  return started
}

// Members of groups

const members = new Map()

async function memberOpen({ member, group, topic, strategy, session_timeout_ms: sessionTimeout }) {
  if (strategy !== 'roundrobin') {
    if (strategy !== 'range') throw new Unavailable(`kafkajs has no ${strategy} assignor`)
  }
  const state = { held: [], records: [], revoked: [], rebalances: 0 }
  const consumer = kafka.consumer({
    groupId: group, sessionTimeout, heartbeatInterval: 500, metadataMaxAge: 2000, rebalanceTimeout: 10000,
    partitionAssigners: [PartitionAssigners.roundRobin],
  })
  state.consumer = consumer
  members.set(member, state)
  consumer.on(consumer.events.GROUP_JOIN, event => {
    const held = Object.entries(event.payload.memberAssignment)
      .flatMap(([name, partitions]) => partitions.map(partition => [name, partition]))
    state.revoked.push(...state.held.filter(old => !held.some(now => now[0] === old[0] && now[1] === old[1])))
    state.held = held
    state.rebalances += 1
  })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await consumer.run({
    autoCommitThreshold: 1,
    eachMessage: async ({ partition, message }) => { state.records.push(wireOf(partition, message)) },
  })
  return null
}

function memberState({ member }) {
  const state = members.get(member)
  const answer = {
    assignment: state.held, records: state.records, revoked: state.revoked, rebalances: state.rebalances,
  }
  state.records = []
  state.revoked = []
  return answer
}

async function memberClose({ member }) {
  await members.get(member).consumer.disconnect()
  members.delete(member)
  return null
}

// Records

async function produce({ topic, records, codec, acks, idempotent }) {
  const options = idempotent ? { idempotent, maxInFlightRequests: 1 } : {}
  const producer = kafka.producer(options)
  await producer.connect()
  try {
    await producer.send({
      topic, acks: acks === 'all' ? -1 : Number(acks), compression: CODECS[codec], messages: records.map(messageOf),
    })
  } finally {
    await producer.disconnect()
  }
  return []
}

let readers = 0

async function consume({ topic, partition, offset, count, isolation, wait_s: waitS }) {
  readers += 1
  const consumer = kafka.consumer({
    groupId: `reader.${process.pid}.${readers}`, maxBytesPerPartition: 16000000,
    readUncommitted: isolation === 'read_uncommitted', maxWaitTimeInMs: 500,
  })
  const read = []
  let next = 0
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  try {
    await new Promise((resolve, reject) => {
      const patience = setTimeout(resolve, waitS * 1000)
      consumer.on(consumer.events.CRASH, event => reject(event.payload.error))
      consumer.run({
        autoCommit: false,
        eachMessage: async ({ partition: from, message }) => {
          // kafkajs reads as a member of a group alone, which may be handed a record again.
          if (from === partition && read.length < count && Number(message.offset) >= next) {
            read.push(wireOf(from, message))
            next = Number(message.offset) + 1
          }
          if (read.length === count) {
            clearTimeout(patience)
            resolve()
          }
        },
      })
      if (offset > 0) consumer.seek({ topic, partition, offset: String(offset) })
    })
  } finally {
    await consumer.disconnect()
  }
  return read
}

async function initTransactions({ id }) {
  const producer = kafka.producer({ transactionalId: id, idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  try {
    const transaction = await producer.transaction()
    await transaction.abort()
  } finally {
    await producer.disconnect()
  }
  return null
}

// Administration

async function createTopic({ topic, partitions, replicas, configs }) {
  const created = await (await admin()).createTopics({
    topics: [{
      topic, numPartitions: partitions, replicationFactor: replicas,
      configEntries: Object.entries(configs).map(([name, value]) => ({ name, value })),
    }],
  })
  if (!created) throw Object.assign(new Error('exists'), { type: 'TOPIC_ALREADY_EXISTS' })
  return null
}

async function deleteTopic({ topic }) {
  await (await admin()).deleteTopics({ topics: [topic] })
  return null
}

async function listTopics() {
  return (await (await admin()).listTopics()).sort()
}

async function describeTopic({ topic }) {
  const found = (await (await admin()).fetchTopicMetadata({ topics: [topic] })).topics[0]
  return {
    partitions: found.partitions
      .map(each => ({ id: each.partitionId, leader: each.leader, replicas: each.replicas, isr: each.isr }))
      .sort((left, right) => left.id - right.id),
  }
}

async function createPartitions({ topic, total }) {
  await (await admin()).createPartitions({ topicPartitions: [{ topic, count: total }] })
  return null
}

async function deleteRecords({ topic, partition, before_offset: before }) {
  await (await admin()).fetchTopicOffsets(topic) // deleteTopicRecords knows only topics of earlier calls
  await (await admin()).deleteTopicRecords({ topic, partitions: [{ partition, offset: String(before) }] })
  return Number((await (await admin()).fetchTopicOffsets(topic)).find(each => each.partition === partition).low)
}

async function describeConfigs({ kind, name }) {
  const type = ConfigResourceTypes[kind.toUpperCase()]
  const answer = await (await admin()).describeConfigs({ resources: [{ type, name }], includeSynonyms: false })
  const entries = {}
  for (const entry of answer.resources[0].configEntries) {
    entries[entry.configName] = {
      value: entry.configValue, source: SOURCES[entry.configSource], 'read only': entry.readOnly,
      sensitive: entry.isSensitive,
    }
  }
  return entries
}

async function alterConfigs({ kind, name, configs }) {
  const type = ConfigResourceTypes[kind.toUpperCase()]
  const configEntries = Object.entries(configs).map(([key, value]) => ({ name: key, value }))
  await (await admin()).alterConfigs({ resources: [{ type, name, configEntries }] })
  return null
}

async function describeCluster() {
  const found = await (await admin()).describeCluster()
  return {
    nodes: found.brokers.map(node => node.nodeId).sort(), controller: found.controller,
    'has cluster id': Boolean(found.clusterId),
  }
}

async function listGroups() {
  return (await (await admin()).listGroups()).groups.map(group => group.groupId).sort()
}

async function describeGroup({ group }) {
  const found = (await (await admin()).describeGroups([group])).groups[0]
  return {
    state: found.state.toUpperCase(), protocol: found.protocol, 'protocol type': found.protocolType,
    members: found.members.map(() => ({})),
  }
}

async function deleteGroup({ group }) {
  await (await admin()).deleteGroups([group])
  return null
}

async function alterOffsets({ group, offsets }) {
  const topics = new Map()
  for (const [topic, partition, offset] of offsets) {
    topics.set(topic, [...(topics.get(topic) || []), { partition, offset: String(offset) }])
  }
  for (const [topic, partitions] of topics) {
    await (await admin()).setOffsets({ groupId: group, topic, partitions })
  }
  return null
}

async function fetchOffsets({ group }) {
  const found = await (await admin()).fetchOffsets({ groupId: group })
  return found.flatMap(({ topic, partitions }) =>
    partitions.map(({ partition, offset }) => [topic, partition, Number(offset)]))
}

async function listOffsets({ topic, partition, at }) {
  if (at === 'max-timestamp') throw new Unavailable('kafkajs has no look-up of the greatest timestamp')
  const client = await admin()
  const one = rows => rows.find(each => each.partition === partition)
  if (at === 'earliest') return Number(one(await client.fetchTopicOffsets(topic)).low)
  if (at === 'latest') return Number(one(await client.fetchTopicOffsets(topic)).high)
  return Number(one(await client.fetchTopicOffsetsByTimestamp(topic, at)).offset)
}

function hello() {
  return {
    version: `kafkajs ${require('kafkajs/package.json').version}`,
    lacks: {
      'strategy range': 'kafkajs has only a round-robin assignor',
      'strategy cooperative': 'kafkajs has no cooperative assignor',
      'static members': 'kafkajs has no static membership',
      'null headers': 'kafkajs cannot send a header without a value',
      'reset none': 'kafkajs always resets',
      'last stable offset': 'kafkajs lists the ends of logs for readers of one isolation level alone',
      'repeated headers': 'kafkajs keeps headers by name: their order is lost',
    },
  }
}

const OPERATIONS = {
  ...transactions(kafka),
  hello, produce, consume, init_transactions: initTransactions,
  member_open: memberOpen, member_state: memberState, member_close: memberClose,
  create_topic: createTopic, delete_topic: deleteTopic, list_topics: listTopics, describe_topic: describeTopic,
  create_partitions: createPartitions, delete_records: deleteRecords,
  describe_configs: describeConfigs, alter_configs: alterConfigs, describe_cluster: describeCluster,
  list_groups: listGroups, describe_group: describeGroup, delete_group: deleteGroup,
  alter_offsets: alterOffsets, fetch_offsets: fetchOffsets, list_offsets: listOffsets,
}

function kafkaName(error) {
  for (let each = error; each; each = each.cause || (each.errors && each.errors[0]) || each.originalError) {
    if (each.type) return each.type
    if (each.groups && each.groups[0] && each.groups[0].error) return each.groups[0].error.type
    if (each.partitions && each.partitions[0] && each.partitions[0].error) {
      return each.partitions[0].error.type || each.partitions[0].error.name
    }
  }
  return null
}

async function answer(line) {
  const { op, args } = JSON.parse(line)
  const operation = OPERATIONS[op]
  if (!operation) return { unavailable: `the client has no call for ${op.replace(/_/g, ' ')}` }
  try {
    const result = await operation(args)
    return { result: result === undefined ? null : result }
  } catch (error) {
    if (error instanceof Unavailable) return { unavailable: error.message }
    const name = kafkaName(error)
    if (name || error.name.startsWith('KafkaJS')) return { refused: name || error.name, text: error.message }
    return { crashed: `${error.name}: ${error.message}`, text: error.stack }
  }
}

async function serve() {
  await zstd.init()
  for await (const line of readline.createInterface({ input: process.stdin })) {
    process.stdout.write(JSON.stringify(await answer(line)) + '\n')
  }
  process.exit(0)
}

process.on('unhandledRejection', error => process.stderr.write(`${error.stack}\n`))
serve()
