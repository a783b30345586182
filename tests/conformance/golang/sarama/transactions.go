package main

import (
	"context"
	"errors"
	"time"

	"conformance/wire"

	"github.com/IBM/sarama"
)

// transactions are the transactional producers of this driver, by the names that scenarios give them.
type transactions struct {
	driver      *driver
	transactors map[string]sarama.SyncProducer
	pipelines   map[string]*pipeline
}

func transactional(d *driver) wire.Operations {
	t := &transactions{d, map[string]sarama.SyncProducer{}, map[string]*pipeline{}}
	return wire.Operations{
		"transactor_open": t.open, "transactor_begin": t.begin, "transactor_send": t.send, "transactor_end": t.end,
		"transactor_close": t.close, "pipeline_open": t.pipelineOpen, "pipeline_step": t.pipelineStep,
		"pipeline_close": t.pipelineClose,
	}
}

func (d *driver) transactor(id string, timeout time.Duration) (sarama.SyncProducer, error) {
	given := config()
	given.Producer.Transaction.ID = id
	given.Producer.Transaction.Timeout = timeout
	given.Producer.Transaction.Retry.Max = 100
	given.Producer.Idempotent = true
	given.Producer.RequiredAcks = sarama.WaitForAll
	given.Producer.Partitioner = sarama.NewManualPartitioner
	given.Producer.Return.Successes = true
	given.Producer.Retry.Max = 10
	given.Net.MaxOpenRequests = 1
	return sarama.NewSyncProducer(d.bootstrap, given)
}

func (t *transactions) open(args wire.Args) (any, error) {
	producer, err := t.driver.transactor(args.ID, time.Duration(args.TimeoutMs)*time.Millisecond)
	if err == nil {
		t.transactors[args.Transactor] = producer
	}
	return nil, err
}

func (t *transactions) begin(args wire.Args) (any, error) {
	if err := t.transactors[args.Transactor].BeginTxn(); err != nil {
		if name, code := refusal(err); name == "" && code == 0 { // the client's own state forbids it
			return nil, wire.Refused("INVALID_TXN_STATE")
		}
		return nil, err
	}
	return nil, nil
}

func (t *transactions) send(args wire.Args) (any, error) {
	messages := make([]*sarama.ProducerMessage, len(args.Records))
	for i, each := range args.Records {
		messages[i] = &sarama.ProducerMessage{
			Topic: args.Topic, Partition: each.Partition, Key: encoder(each.Key), Value: encoder(each.Value),
		}
	}
	return sendAll(t.transactors[args.Transactor], messages)
}

func sendAll(producer sarama.SyncProducer, messages []*sarama.ProducerMessage) (any, error) {
	if err := producer.SendMessages(messages); err != nil {
		var several sarama.ProducerErrors
		if errors.As(err, &several) {
			return nil, several[0]
		}
		return nil, err
	}
	offsets := make([]int64, len(messages))
	for i, message := range messages {
		offsets[i] = message.Offset
	}
	return offsets, nil
}

func (t *transactions) end(args wire.Args) (any, error) {
	return nil, end(t.transactors[args.Transactor], args.Commit)
}

func end(producer sarama.SyncProducer, commit bool) error {
	if commit {
		return producer.CommitTxn()
	}
	return producer.AbortTxn()
}

func (t *transactions) close(args wire.Args) (any, error) {
	producer := t.transactors[args.Transactor]
	delete(t.transactors, args.Transactor)
	return nil, producer.Close()
}

// A pipeline is the only member of a group, and the producer that writes what it reads.
type pipeline struct {
	group    sarama.ConsumerGroup
	producer sarama.SyncProducer
	name     string
	cancel   context.CancelFunc
	done     chan struct{}
	messages chan *sarama.ConsumerMessage
	sessions chan sarama.ConsumerGroupSession
	session  sarama.ConsumerGroupSession
}

func (t *transactions) pipelineOpen(args wire.Args) (any, error) {
	producer, err := t.driver.transactor(args.ID, patience)
	if err != nil {
		return nil, err
	}
	given := config()
	given.Consumer.Group.Session.Timeout = 6 * time.Second
	given.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	given.Consumer.Return.Errors = false
	group, err := sarama.NewConsumerGroup(t.driver.bootstrap, args.Group, given)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &pipeline{
		group: group, producer: producer, name: args.Group, cancel: cancel, done: make(chan struct{}),
		messages: make(chan *sarama.ConsumerMessage, 1000), sessions: make(chan sarama.ConsumerGroupSession, 100),
	}
	t.pipelines[args.Pipeline] = p
	go func() {
		defer close(p.done)
		for ctx.Err() == nil {
			if err := group.Consume(ctx, []string{args.Topic}, p); err != nil {
				time.Sleep(200 * time.Millisecond)
			}
		}
	}()
	return nil, nil
}

func (p *pipeline) Setup(session sarama.ConsumerGroupSession) error {
	p.sessions <- session
	return nil
}

func (p *pipeline) Cleanup(sarama.ConsumerGroupSession) error {
	return nil
}

func (p *pipeline) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, isOpen := <-claim.Messages():
			if !isOpen {
				return nil
			}
			p.messages <- message
		case <-session.Context().Done():
			return nil
		}
	}
}

func (t *transactions) pipelineStep(args wire.Args) (any, error) {
	p := t.pipelines[args.Pipeline]
	read := p.read(args.Count)
	if err := p.producer.BeginTxn(); err != nil {
		return nil, err
	}
	rows := make([]wire.Record, len(read))
	written := make([]*sarama.ProducerMessage, len(read))
	places := map[string][]*sarama.PartitionOffsetMetadata{}
	for i, each := range read {
		rows[i] = wireOf(each)
		written[i] = &sarama.ProducerMessage{
			Topic: args.Into, Partition: each.Partition, Key: sarama.ByteEncoder(each.Key),
			Value: sarama.ByteEncoder(each.Value),
		}
		place := &sarama.PartitionOffsetMetadata{Partition: each.Partition, Offset: each.Offset + 1}
		places[each.Topic] = append(places[each.Topic], place)
	}
	if _, err := sendAll(p.producer, written); err != nil {
		return nil, err
	}
	member := sarama.NewConsumerGroupMetadataFromSession(p.session, p.name, nil)
	if err := p.producer.AddOffsetsToTxnWithGroupMetadata(places, member); err != nil {
		return nil, err
	}
	if args.End == "leave" {
		return rows, nil
	}
	return rows, end(p.producer, args.End == "commit")
}

// read takes messages, and the last session that there was when they came.
func (p *pipeline) read(count int) []*sarama.ConsumerMessage {
	read := []*sarama.ConsumerMessage{}
	deadline := time.After(patience)
	for len(read) < count {
		select {
		case p.session = <-p.sessions:
		case message := <-p.messages:
			read = append(read, message)
		case <-deadline:
			return read
		}
	}
	for len(p.sessions) > 0 {
		p.session = <-p.sessions
	}
	return read
}

func (t *transactions) pipelineClose(args wire.Args) (any, error) {
	p := t.pipelines[args.Pipeline]
	delete(t.pipelines, args.Pipeline)
	p.cancel()
	<-p.done
	if err := p.group.Close(); err != nil {
		return nil, err
	}
	return nil, p.producer.Close()
}
