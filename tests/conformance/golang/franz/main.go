// franz-go as a driver.
package main

import (
	"context"
	"errors"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"conformance/wire"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

var balancers = map[string]kgo.GroupBalancer{
	"range": kgo.RangeBalancer(), "roundrobin": kgo.RoundRobinBalancer(), "cooperative": kgo.CooperativeStickyBalancer(),
}

var isolations = map[string]kgo.IsolationLevel{
	"read_committed": kgo.ReadCommitted(), "read_uncommitted": kgo.ReadUncommitted(),
}

// The strategy of members with the consumer protocol (KIP-848).
const serverSide = "consumer"

const patience = 60 * time.Second

type driver struct {
	bootstrap string
	members   map[string]*member
	sharers   map[string]*sharer
}

func (d *driver) options() []kgo.Opt {
	return []kgo.Opt{
		kgo.SeedBrokers(strings.Split(d.bootstrap, ",")...), kgo.MetadataMinAge(100 * time.Millisecond), kgo.AllowAutoTopicCreation(),
		kgo.FetchMaxPartitionBytes(16 << 20), kgo.RequestTimeoutOverhead(30 * time.Second),
		kgo.RetryTimeout(30 * time.Second),
	}
}

func (d *driver) client(options ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append(d.options(), options...)...)
}

func within(limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), limit)
}

func (d *driver) produce(args wire.Args) (any, error) {
	acks := map[string]kgo.Acks{"all": kgo.AllISRAcks(), "1": kgo.LeaderAck(), "0": kgo.NoAck()}[args.Acks]
	options := []kgo.Opt{
		kgo.RequiredAcks(acks), kgo.ProducerBatchCompression(codecs[args.Codec]),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(50 * time.Millisecond),
		kgo.ProducerBatchMaxBytes(16 << 20),
	}
	if !args.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	client, err := d.client(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	records := make([]*kgo.Record, len(args.Records))
	for i, each := range args.Records {
		record := &kgo.Record{
			Topic: args.Topic, Partition: each.Partition, Key: wire.Bytes(each.Key), Value: wire.Bytes(each.Value),
		}
		for _, header := range each.Headers {
			name := *header[0]
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: name, Value: wire.Bytes(header[1])})
		}
		if each.Timestamp != nil {
			record.Timestamp = time.UnixMilli(*each.Timestamp)
		}
		records[i] = record
	}
	ctx, cancel := within(patience)
	defer cancel()
	if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return nil, err
	}
	offsets := make([]int64, len(records))
	for i, record := range records {
		offsets[i] = record.Offset
		if args.Acks == "0" {
			offsets[i] = -1
		}
	}
	return offsets, nil
}

func (d *driver) consume(args wire.Args) (any, error) {
	reset := kgo.NewOffset().AtStart()
	if args.Reset == "none" {
		reset = kgo.NoResetOffset()
	}
	from := kgo.NewOffset().At(args.Offset)
	options := []kgo.Opt{
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{args.Topic: {args.Partition: from}}),
		kgo.ConsumeResetOffset(reset),
	}
	if args.Isolation != nil {
		options = append(options, kgo.FetchIsolationLevel(isolations[*args.Isolation]))
	}
	client, err := d.client(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	read := []wire.Record{}
	for len(read) < args.Count {
		ctx, cancel := within(time.Duration(args.WaitS) * time.Second)
		fetches := client.PollFetches(ctx)
		cancel()
		if errors.Is(fetches.Err0(), context.DeadlineExceeded) {
			break
		}
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		for _, record := range fetches.Records() {
			if len(read) < args.Count {
				read = append(read, wireOf(record))
			}
		}
	}
	return read, nil
}

func wireOf(record *kgo.Record) wire.Record {
	headers := [][2]*string{}
	for _, header := range record.Headers {
		name := header.Key
		headers = append(headers, [2]*string{&name, wire.Text(header.Value)})
	}
	stamp := record.Timestamp.UnixMilli()
	return wire.Record{
		Key: wire.Text(record.Key), Value: wire.Text(record.Value), Headers: headers, Timestamp: &stamp,
		Partition: record.Partition, Offset: record.Offset,
	}
}

func (d *driver) initTransactions(args wire.Args) (any, error) {
	client, err := d.client(kgo.TransactionalID(args.ID))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := within(patience)
	defer cancel()
	_, _, err = client.ProducerID(ctx)
	return nil, err
}

// A member of a group, and the goroutine that polls it.
type member struct {
	client *kgo.Client
	cancel context.CancelFunc
	done   chan struct{}

	mutex sync.Mutex
	held  map[wire.Pair]bool
	state wire.State
}

func (d *driver) memberOpen(args wire.Args) (any, error) {
	strategy := args.Strategy
	if strategy == serverSide {
		strategy = "range"
	}
	balancer, known := balancers[strategy]
	if !known {
		return nil, wire.Unavailable("franz-go has no " + args.Strategy + " balancer")
	}
	ctx, cancel := context.WithCancel(context.Background())
	m := &member{cancel: cancel, done: make(chan struct{}), held: map[wire.Pair]bool{}}
	options := []kgo.Opt{
		kgo.ConsumerGroup(args.Group), kgo.ConsumeTopics(args.Topic), kgo.Balancers(balancer),
		kgo.SessionTimeout(time.Duration(args.SessionTimeoutMs) * time.Millisecond),
		kgo.HeartbeatInterval(500 * time.Millisecond), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.OnPartitionsAssigned(m.assigned), kgo.OnPartitionsRevoked(m.revoked), kgo.OnPartitionsLost(m.lost),
	}
	if args.Strategy == serverSide {
		options = append(options, kgo.ServerSideBalancer())
	}
	if args.InstanceID != nil {
		options = append(options, kgo.InstanceID(*args.InstanceID))
	}
	client, err := d.client(options...)
	if err != nil {
		cancel()
		return nil, err
	}
	m.client = client
	d.members[args.Member] = m
	go m.poll(ctx)
	return nil, nil
}

func (m *member) poll(ctx context.Context) {
	defer close(m.done)
	for ctx.Err() == nil {
		fetches := m.client.PollFetches(ctx)
		m.mutex.Lock()
		for _, record := range fetches.Records() {
			m.state.Records = append(m.state.Records, wireOf(record))
		}
		m.mutex.Unlock()
		m.client.AllowRebalance()
	}
}

func (m *member) assigned(_ context.Context, _ *kgo.Client, added map[string][]int32) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.state.Rebalances++
	for _, pair := range pairs(added) {
		m.held[pair] = true
	}
}

func (m *member) revoked(ctx context.Context, client *kgo.Client, gone map[string][]int32) {
	m.lost(ctx, client, gone)
	_ = client.CommitUncommittedOffsets(ctx)
}

func (m *member) lost(_ context.Context, _ *kgo.Client, gone map[string][]int32) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	for _, pair := range pairs(gone) {
		delete(m.held, pair)
		m.state.Revoked = append(m.state.Revoked, pair)
	}
}

func pairs(partitions map[string][]int32) []wire.Pair {
	found := []wire.Pair{}
	for topic, numbers := range partitions {
		for _, number := range numbers {
			found = append(found, wire.Pair{Topic: topic, Partition: number})
		}
	}
	return found
}

func (d *driver) memberState(args wire.Args) (any, error) {
	m := d.members[args.Member]
	m.mutex.Lock()
	defer m.mutex.Unlock()
	state := wire.State{
		Assignment: []wire.Pair{}, Records: append([]wire.Record{}, m.state.Records...),
		Revoked: append([]wire.Pair{}, m.state.Revoked...), Rebalances: m.state.Rebalances,
	}
	for pair := range m.held {
		state.Assignment = append(state.Assignment, pair)
	}
	m.state.Records, m.state.Revoked = nil, nil
	return state, nil
}

func (d *driver) memberClose(args wire.Args) (any, error) {
	m := d.members[args.Member]
	delete(d.members, args.Member)
	m.cancel()
	<-m.done
	ctx, cancel := within(patience)
	defer cancel()
	err := m.client.CommitUncommittedOffsets(ctx)
	m.client.CloseAllowingRebalance()
	return nil, err
}

func hello(wire.Args) (any, error) {
	version := "franz-go"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if module.Path == "github.com/twmb/franz-go" {
				version += " " + module.Version
			}
		}
	}
	lacks := map[string]string{"offsets without an end": "franz-go commits a session's offsets and its transaction in one call"}
	return map[string]any{"version": version, "lacks": lacks}, nil
}

func refusal(err error) (string, int16) {
	var known *kerr.Error
	if errors.As(err, &known) {
		return known.Message, 0
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "TIMED_OUT", 0
	}
	return "", 0
}

func main() {
	d := &driver{bootstrap: os.Args[1], members: map[string]*member{}, sharers: map[string]*sharer{}}
	operations := wire.Operations{
		"hello": hello, "produce": d.produce, "consume": d.consume, "init_transactions": d.initTransactions,
		"member_open": d.memberOpen, "member_state": d.memberState, "member_close": d.memberClose,
		"share_open": d.shareOpen, "share_state": d.shareState, "share_close": d.shareClose,
	}
	for name, operation := range administration(d) {
		operations[name] = operation
	}
	for name, operation := range transactional(d) {
		operations[name] = operation
	}
	wire.Serve(operations, refusal)
}
