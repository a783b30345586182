// sarama as a driver.
package main

import (
	"errors"
	"io"
	"log"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"conformance/wire"

	"github.com/IBM/sarama"
)

var codecs = map[string]sarama.CompressionCodec{
	"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
	"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
}

const patience = 60 * time.Second

type driver struct {
	bootstrap []string
	members   map[string]*member
}

func config() *sarama.Config {
	given := sarama.NewConfig()
	given.Version = sarama.MaxVersion
	given.ClientID = "conformance"
	given.Metadata.RefreshFrequency = 2 * time.Second
	given.Metadata.Retry.Backoff = 100 * time.Millisecond
	given.Metadata.Retry.Max = 20
	given.Consumer.Return.Errors = true
	given.Consumer.Fetch.Default = 16 << 20
	given.Consumer.Offsets.Initial = sarama.OffsetOldest
	given.Consumer.Offsets.AutoCommit.Enable = false
	return given
}

func encoder(text *string) sarama.Encoder {
	if text == nil {
		return nil
	}
	return sarama.ByteEncoder(wire.Bytes(text))
}

func (d *driver) produce(args wire.Args) (any, error) {
	given := config()
	given.Producer.RequiredAcks = map[string]sarama.RequiredAcks{
		"all": sarama.WaitForAll, "1": sarama.WaitForLocal, "0": sarama.NoResponse,
	}[args.Acks]
	given.Producer.Compression = codecs[args.Codec]
	given.Producer.Partitioner = sarama.NewManualPartitioner
	given.Producer.MaxMessageBytes = 16 << 20
	given.Producer.Flush.Frequency = 50 * time.Millisecond
	given.Producer.Return.Successes = true
	given.Producer.Retry.Max = 10
	if args.Idempotent {
		given.Producer.Idempotent = true
		given.Net.MaxOpenRequests = 1
	}
	producer, err := sarama.NewSyncProducer(d.bootstrap, given)
	if err != nil {
		return nil, err
	}
	defer func() { _ = producer.Close() }()
	messages := make([]*sarama.ProducerMessage, len(args.Records))
	for i, each := range args.Records {
		message := &sarama.ProducerMessage{
			Topic: args.Topic, Partition: each.Partition, Key: encoder(each.Key), Value: encoder(each.Value),
		}
		for _, header := range each.Headers {
			named := sarama.RecordHeader{Key: []byte(*header[0]), Value: wire.Bytes(header[1])}
			message.Headers = append(message.Headers, named)
		}
		if each.Timestamp != nil {
			message.Timestamp = time.UnixMilli(*each.Timestamp)
		}
		messages[i] = message
	}
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
		if args.Acks == "0" {
			offsets[i] = -1
		}
	}
	return offsets, nil
}

func (d *driver) consume(args wire.Args) (any, error) {
	given := config()
	if args.Isolation != nil && *args.Isolation == "read_committed" {
		given.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	consumer, err := sarama.NewConsumer(d.bootstrap, given)
	if err != nil {
		return nil, err
	}
	defer func() { _ = consumer.Close() }()
	partition, err := consumer.ConsumePartition(args.Topic, args.Partition, args.Offset)
	if errors.Is(err, sarama.ErrOffsetOutOfRange) && args.Reset == "earliest" {
		partition, err = consumer.ConsumePartition(args.Topic, args.Partition, sarama.OffsetOldest)
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = partition.Close() }()
	read := []wire.Record{}
	for len(read) < args.Count {
		select {
		case message := <-partition.Messages():
			read = append(read, wireOf(message))
		case failed := <-partition.Errors():
			return nil, failed
		case <-time.After(time.Duration(args.WaitS) * time.Second):
			return read, nil
		}
	}
	return read, nil
}

func wireOf(message *sarama.ConsumerMessage) wire.Record {
	headers := [][2]*string{}
	for _, header := range message.Headers {
		name := string(header.Key)
		headers = append(headers, [2]*string{&name, wire.Text(header.Value)})
	}
	stamp := message.Timestamp.UnixMilli()
	return wire.Record{
		Key: wire.Text(message.Key), Value: wire.Text(message.Value), Headers: headers, Timestamp: &stamp,
		Partition: message.Partition, Offset: message.Offset,
	}
}

func (d *driver) initTransactions(args wire.Args) (any, error) {
	given := config()
	given.Producer.Transaction.ID = args.ID
	given.Producer.Idempotent = true
	given.Producer.RequiredAcks = sarama.WaitForAll
	given.Producer.Return.Successes = true
	given.Net.MaxOpenRequests = 1
	given.Producer.Transaction.Retry.Max = 10
	producer, err := sarama.NewSyncProducer(d.bootstrap, given)
	if err != nil {
		return nil, err
	}
	return nil, producer.Close()
}

func hello(wire.Args) (any, error) {
	version := "sarama"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if strings.HasSuffix(module.Path, "/sarama") {
				version += " " + module.Version
			}
		}
	}
	lacks := map[string]string{
		"strategy cooperative": "sarama has no cooperative balance strategy",
		"last stable offset":   "sarama has no look-up of the last stable offset",
	}
	return map[string]any{"version": version, "lacks": lacks}, nil
}

func refusal(err error) (string, int16) {
	var known sarama.KError
	if errors.As(err, &known) {
		return "", int16(known)
	}
	return "", 0
}

func main() {
	sarama.Logger = log.New(io.Discard, "", 0)
	d := &driver{bootstrap: strings.Split(os.Args[1], ","), members: map[string]*member{}}
	operations := wire.Operations{
		"hello": hello, "produce": d.produce, "consume": d.consume, "init_transactions": d.initTransactions,
		"member_open": d.memberOpen, "member_state": d.memberState, "member_close": d.memberClose,
	}
	for name, operation := range administration(d) {
		operations[name] = operation
	}
	for name, operation := range transactional(d) {
		operations[name] = operation
	}
	wire.Serve(operations, refusal)
}
