package main

import (
	"context"
	"strings"
	"sync"
	"time"

	"conformance/wire"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A member of a share group, and the goroutine that polls it.
type sharer struct {
	client *kgo.Client
	cancel context.CancelFunc
	done   chan struct{}

	mutex  sync.Mutex
	state  wire.ShareState
	failed map[int32]bool
}

func (d *driver) shareOpen(args wire.Args) (any, error) {
	ctx, cancel := context.WithCancel(context.Background())
	s := &sharer{cancel: cancel, done: make(chan struct{}), failed: map[int32]bool{}}
	client, err := d.client(
		kgo.ShareGroup(args.Group), kgo.ConsumeTopics(args.Topic), kgo.ShareMaxRecords(int32(args.Count)),
		kgo.ShareAckCallback(s.acknowledged),
	)
	if err != nil {
		cancel()
		return nil, err
	}
	s.client = client
	d.sharers[args.Member] = s
	go s.poll(ctx)
	return nil, nil
}

func (s *sharer) poll(ctx context.Context) {
	defer close(s.done)
	for ctx.Err() == nil {
		records := s.client.PollFetches(ctx).Records()
		s.note(records)
		for _, record := range records {
			record.Ack(verdict(string(record.Value), record.DeliveryCount()))
		}
		s.confirm(records)
	}
}

func (s *sharer) note(records []*kgo.Record) {
	now := time.Now().UnixMilli()
	s.mutex.Lock()
	defer s.mutex.Unlock()
	clear(s.failed)
	for _, record := range records {
		s.state.Delivered = append(s.state.Delivered, wire.Delivery{
			Place: wire.Place{Partition: record.Partition, Offset: record.Offset, AtMs: now},
			Count: record.DeliveryCount(), Value: string(record.Value),
		})
	}
}

// The client tells the outcome of a partition alone: its records are confirmed where no acknowledgement has failed.
func (s *sharer) confirm(records []*kgo.Record) {
	ctx, cancel := within(patience)
	defer cancel()
	if s.client.FlushAcks(ctx) != nil {
		return
	}
	now := time.Now().UnixMilli()
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, record := range records {
		if !s.failed[record.Partition] {
			place := wire.Place{Partition: record.Partition, Offset: record.Offset, AtMs: now}
			s.state.Confirmed = append(s.state.Confirmed, place)
		}
	}
}

// The value says what becomes of its record.
func verdict(value string, count int32) kgo.AckStatus {
	switch _, verb, _ := strings.Cut(value, ":"); verb {
	case "reject":
		return kgo.AckReject
	case "release":
		return kgo.AckRelease
	case "late":
		if count == 1 {
			return kgo.AckRelease
		}
	}
	return kgo.AckAccept
}

func (s *sharer) acknowledged(_ *kgo.Client, results kgo.ShareAckResults) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, result := range results {
		if result.Err != nil {
			s.failed[result.Partition] = true
		}
	}
}

func (d *driver) shareState(args wire.Args) (any, error) {
	return d.sharers[args.Member].told(args.Last), nil
}

// What happened since it was last asked. After the last time no further record is acknowledged.
func (s *sharer) told(isLast bool) wire.ShareState {
	s.mutex.Lock()
	if !isLast {
		defer s.mutex.Unlock()
	}
	state := s.state
	s.state = wire.ShareState{}
	return state
}

func (d *driver) shareClose(args wire.Args) (any, error) {
	s := d.sharers[args.Member]
	delete(d.sharers, args.Member)
	s.cancel()
	<-s.done
	s.client.Close()
	return s.told(true), nil
}
