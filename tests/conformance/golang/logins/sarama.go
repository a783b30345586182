package main

import (
	"crypto/tls"
	"errors"
	"time"

	kafka "github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

// conversation is SCRAM as sarama asks for it: the application brings it along.
type conversation struct {
	hash    scram.HashGeneratorFcn
	current *scram.ClientConversation
}

func (c *conversation) Begin(user, password, authorization string) error {
	client, err := c.hash.NewClient(user, password, authorization)
	if err == nil {
		c.current = client.NewConversation()
	}
	return err
}

func (c *conversation) Step(challenge string) (string, error) { return c.current.Step(challenge) }

func (c *conversation) Done() bool { return c.current.Done() }

type tokens struct{}

func (tokens) Token() (*kafka.AccessToken, error) { return &kafka.AccessToken{Token: bearer()}, nil }

func sarama(bootstrap string, given security, settings *tls.Config) (string, error) {
	config := kafka.NewConfig()
	config.Version = kafka.MaxVersion
	config.Net.TLS.Enable, config.Net.TLS.Config = true, settings
	config.Metadata.Retry.Max = 1
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = kafka.NewManualPartitioner
	if given.Mechanism != "" {
		login := &config.Net.SASL
		login.Enable, login.Mechanism = true, kafka.SASLMechanism(given.Mechanism)
		login.User, login.Password, login.TokenProvider = given.User, given.Password, tokens{}
		login.SCRAMClientGeneratorFunc = func() kafka.SCRAMClient {
			if given.Mechanism == kafka.SASLTypeSCRAMSHA512 {
				return &conversation{hash: scram.SHA512}
			}
			return &conversation{hash: scram.SHA256}
		}
	}
	client, err := kafka.NewClient([]string{bootstrap}, config)
	if errors.Is(err, kafka.ErrSASLAuthenticationFailed) {
		return refused, nil
	}
	if err != nil {
		return other, err
	}
	defer client.Close()
	producer, err := kafka.NewSyncProducerFromClient(client)
	if err != nil {
		return other, err
	}
	if _, _, err := producer.SendMessage(&kafka.ProducerMessage{Topic: topic, Value: kafka.StringEncoder("record")}); err != nil {
		return other, err
	}
	consumer, err := kafka.NewConsumerFromClient(client)
	if err != nil {
		return other, err
	}
	partition, err := consumer.ConsumePartition(topic, 0, kafka.OffsetOldest)
	if err != nil {
		return other, err
	}
	select {
	case <-partition.Messages():
		return served, nil
	case <-time.After(patience):
		return other, nil
	}
}
