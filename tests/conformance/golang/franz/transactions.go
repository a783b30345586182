package main

import (
	"context"
	"errors"
	"time"

	"conformance/wire"

	"github.com/twmb/franz-go/pkg/kgo"
)

// transactions are the transactional producers of this driver, by the names that scenarios give them.
type transactions struct {
	driver      *driver
	transactors map[string]*kgo.Client
	pipelines   map[string]*kgo.GroupTransactSession
}

func transactional(d *driver) wire.Operations {
	t := &transactions{d, map[string]*kgo.Client{}, map[string]*kgo.GroupTransactSession{}}
	return wire.Operations{
		"transactor_open": t.open, "transactor_begin": t.begin, "transactor_send": t.send, "transactor_end": t.end,
		"transactor_close": t.close, "pipeline_open": t.pipelineOpen, "pipeline_step": t.pipelineStep,
		"pipeline_close": t.pipelineClose,
	}
}

func producing(id string, timeout time.Duration) []kgo.Opt {
	return []kgo.Opt{
		kgo.TransactionalID(id), kgo.TransactionTimeout(timeout), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(20 * time.Millisecond),
	}
}

func (t *transactions) open(args wire.Args) (any, error) {
	client, err := t.driver.client(producing(args.ID, time.Duration(args.TimeoutMs)*time.Millisecond)...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := within(patience)
	defer cancel()
	if _, _, err = client.ProducerID(ctx); err != nil {
		client.Close()
		return nil, err
	}
	t.transactors[args.Transactor] = client
	return nil, nil
}

func (t *transactions) begin(args wire.Args) (any, error) {
	if err := t.transactors[args.Transactor].BeginTransaction(); err != nil {
		if name, code := refusal(err); name == "" && code == 0 { // the client's own state forbids it
			return nil, wire.Refused("INVALID_TXN_STATE")
		}
		return nil, err
	}
	return nil, nil
}

func (t *transactions) send(args wire.Args) (any, error) {
	records := make([]*kgo.Record, len(args.Records))
	for i, each := range args.Records {
		records[i] = &kgo.Record{
			Topic: args.Topic, Partition: each.Partition, Key: wire.Bytes(each.Key), Value: wire.Bytes(each.Value),
		}
	}
	ctx, cancel := within(patience)
	defer cancel()
	if err := t.transactors[args.Transactor].ProduceSync(ctx, records...).FirstErr(); err != nil {
		return nil, err
	}
	offsets := make([]int64, len(records))
	for i, record := range records {
		offsets[i] = record.Offset
	}
	return offsets, nil
}

func (t *transactions) end(args wire.Args) (any, error) {
	client := t.transactors[args.Transactor]
	ctx, cancel := within(patience)
	defer cancel()
	if args.Commit {
		return nil, client.EndTransaction(ctx, kgo.TryCommit)
	}
	if err := client.AbortBufferedRecords(ctx); err != nil {
		return nil, err
	}
	return nil, client.EndTransaction(ctx, kgo.TryAbort)
}

func (t *transactions) close(args wire.Args) (any, error) {
	t.transactors[args.Transactor].Close()
	delete(t.transactors, args.Transactor)
	return nil, nil
}

func (t *transactions) pipelineOpen(args wire.Args) (any, error) {
	session, err := kgo.NewGroupTransactSession(append(
		append(t.driver.options(), producing(args.ID, patience)...),
		kgo.ConsumerGroup(args.Group), kgo.ConsumeTopics(args.Topic), kgo.SessionTimeout(6*time.Second),
		kgo.HeartbeatInterval(500*time.Millisecond), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.RequireStableFetchOffsets(),
	)...)
	if err != nil {
		return nil, err
	}
	t.pipelines[args.Pipeline] = session
	return nil, nil
}

func (t *transactions) pipelineStep(args wire.Args) (any, error) {
	session := t.pipelines[args.Pipeline]
	ctx, cancel := within(patience)
	defer cancel()
	read, err := readAll(ctx, session, args.Count)
	if err != nil {
		return nil, err
	}
	if err := session.Begin(); err != nil {
		return nil, err
	}
	rows := make([]wire.Record, len(read))
	written := make([]*kgo.Record, len(read))
	for i, each := range read {
		rows[i] = wireOf(each)
		written[i] = &kgo.Record{Topic: args.Into, Partition: each.Partition, Key: each.Key, Value: each.Value}
	}
	if err := session.ProduceSync(ctx, written...).FirstErr(); err != nil {
		return nil, err
	}
	committed, err := session.End(ctx, kgo.TransactionEndTry(args.End == "commit"))
	if err == nil && committed != (args.End == "commit") {
		err = errors.New("the session's transaction did not end as it was asked to")
	}
	return rows, err
}

func readAll(ctx context.Context, session *kgo.GroupTransactSession, count int) ([]*kgo.Record, error) {
	read := []*kgo.Record{}
	for len(read) < count {
		fetches := session.PollRecords(ctx, count-len(read))
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		read = append(read, fetches.Records()...)
	}
	return read, nil
}

func (t *transactions) pipelineClose(args wire.Args) (any, error) {
	t.pipelines[args.Pipeline].Close()
	delete(t.pipelines, args.Pipeline)
	return nil, nil
}
