'use strict'
// Operations of transactional producers, by the names that scenarios give them.

const { messageOf, wireOf } = require('./records')

const PATIENCE_MS = 60000
const pause = ms => new Promise(resolve => setTimeout(resolve, ms))

module.exports = kafka => {
  const transactors = new Map()
  const pipelines = new Map()

  // kafkajs initialises a producer when it begins its first transaction: here that is an empty one.
  async function initialised(id, timeoutMs) {
    const producer = kafka.producer({
      transactionalId: id, idempotent: true, maxInFlightRequests: 1, transactionTimeout: timeoutMs,
    })
    await producer.connect()
    const first = await producer.transaction()
    await first.abort()
    return producer
  }

  // kafkajs does not ask again while the end of the last transaction is being written: its caller does.
  async function send(transaction, topic, messages) {
    const deadline = Date.now() + PATIENCE_MS
    for (;;) {
      try {
        const sent = await transaction.send({ topic, messages })
        return sent.map(each => Number(each.baseOffset))
      } catch (error) {
        if (error.type !== 'CONCURRENT_TRANSACTIONS' || Date.now() > deadline) throw error
        await pause(50)
      }
    }
  }

  async function transactorOpen({ transactor, id, timeout_ms: timeoutMs }) {
    transactors.set(transactor, { producer: await initialised(id, timeoutMs), transaction: null })
    return null
  }

  async function transactorBegin({ transactor }) {
    const state = transactors.get(transactor)
    state.transaction = await state.producer.transaction()
    return null
  }

  function transactorSend({ transactor, topic, records }) {
    return send(transactors.get(transactor).transaction, topic, records.map(messageOf))
  }

  async function transactorEnd({ transactor, commit }) {
    const { transaction } = transactors.get(transactor)
    await (commit ? transaction.commit() : transaction.abort())
    return null
  }

  async function transactorClose({ transactor }) {
    await transactors.get(transactor).producer.disconnect()
    transactors.delete(transactor)
    return null
  }

  async function pipelineOpen({ pipeline, id, group, topic }) {
    const producer = await initialised(id, PATIENCE_MS)
    const consumer = kafka.consumer({ groupId: group, sessionTimeout: 6000, heartbeatInterval: 500 })
    const state = { producer, consumer, group, topic, read: [] }
    await consumer.connect()
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
    await consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => { state.read.push({ partition, message }) },
    })
    pipelines.set(pipeline, state)
    return null
  }

  async function pipelineStep({ pipeline, count, into, end }) {
    const { producer, group, topic, read } = pipelines.get(pipeline)
    const deadline = Date.now() + PATIENCE_MS
    while (read.length < count && Date.now() < deadline) await pause(50)
    const taken = read.splice(0, count)
    const transaction = await producer.transaction()
    await send(transaction, into, taken.map(({ partition, message }) => ({ partition, key: message.key, value: message.value })))
    const next = new Map(taken.map(({ partition, message }) => [partition, String(BigInt(message.offset) + 1n)]))
    const partitions = [...next].map(([partition, offset]) => ({ partition, offset }))
    await transaction.sendOffsets({ consumerGroupId: group, topics: [{ topic, partitions }] })
    if (end === 'commit') await transaction.commit()
    if (end === 'abort') await transaction.abort()
    return taken.map(({ partition, message }) => wireOf(partition, message))
  }

  async function pipelineClose({ pipeline }) {
    const { producer, consumer } = pipelines.get(pipeline)
    pipelines.delete(pipeline)
    await consumer.disconnect()
    await producer.disconnect()
    return null
  }

  return {
    transactor_open: transactorOpen, transactor_begin: transactorBegin, transactor_send: transactorSend,
    transactor_end: transactorEnd, transactor_close: transactorClose,
    pipeline_open: pipelineOpen, pipeline_step: pipelineStep, pipeline_close: pipelineClose,
  }
}
