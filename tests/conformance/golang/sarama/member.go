package main

import (
	"context"
	"sync"
	"time"

	"conformance/wire"

	"github.com/IBM/sarama"
)

var strategies = map[string]func() sarama.BalanceStrategy{
	"range": sarama.NewBalanceStrategyRange, "roundrobin": sarama.NewBalanceStrategyRoundRobin,
}

// A member of a group, and the goroutine that keeps it in its sessions.
type member struct {
	group  sarama.ConsumerGroup
	cancel context.CancelFunc
	done   chan struct{}

	mutex sync.Mutex
	held  []wire.Pair
	state wire.State
}

func (d *driver) memberOpen(args wire.Args) (any, error) {
	strategy, known := strategies[args.Strategy]
	if !known {
		return nil, wire.Unavailable("sarama has no " + args.Strategy + " balance strategy")
	}
	given := config()
	given.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategy()}
	given.Consumer.Group.Session.Timeout = time.Duration(args.SessionTimeoutMs) * time.Millisecond
	given.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	given.Consumer.Group.Rebalance.Retry.Backoff = 200 * time.Millisecond
	given.Consumer.Group.Rebalance.Retry.Max = 50
	given.Consumer.Return.Errors = false
	if args.InstanceID != nil {
		given.Consumer.Group.InstanceId = *args.InstanceID
	}
	group, err := sarama.NewConsumerGroup(d.bootstrap, args.Group, given)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	m := &member{group: group, cancel: cancel, done: make(chan struct{})}
	d.members[args.Member] = m
	go func() {
		defer close(m.done)
		for ctx.Err() == nil {
			if err := group.Consume(ctx, []string{args.Topic}, m); err != nil {
				time.Sleep(200 * time.Millisecond)
			}
		}
	}()
	return nil, nil
}

func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.state.Rebalances++
	m.held = []wire.Pair{}
	for topic, partitions := range session.Claims() {
		for _, partition := range partitions {
			m.held = append(m.held, wire.Pair{Topic: topic, Partition: partition})
		}
	}
	return nil
}

func (m *member) Cleanup(session sarama.ConsumerGroupSession) error {
	session.Commit()
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.state.Revoked = append(m.state.Revoked, m.held...)
	m.held = []wire.Pair{}
	return nil
}

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, isOpen := <-claim.Messages():
			if !isOpen {
				return nil
			}
			m.mutex.Lock()
			m.state.Records = append(m.state.Records, wireOf(message))
			m.mutex.Unlock()
			session.MarkMessage(message, "")
		case <-session.Context().Done():
			return nil
		}
	}
}

func (d *driver) memberState(args wire.Args) (any, error) {
	m := d.members[args.Member]
	m.mutex.Lock()
	defer m.mutex.Unlock()
	state := wire.State{
		Assignment: append([]wire.Pair{}, m.held...), Records: append([]wire.Record{}, m.state.Records...),
		Revoked: append([]wire.Pair{}, m.state.Revoked...), Rebalances: m.state.Rebalances,
	}
	m.state.Records, m.state.Revoked = nil, nil
	return state, nil
}

func (d *driver) memberClose(args wire.Args) (any, error) {
	m := d.members[args.Member]
	delete(d.members, args.Member)
	m.cancel()
	<-m.done
	return nil, m.group.Close()
}
