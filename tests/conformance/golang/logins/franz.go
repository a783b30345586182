package main

import (
	"context"
	"crypto/tls"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

func franzMechanism(given security) sasl.Mechanism {
	secret := scram.Auth{User: given.User, Pass: given.Password, IsToken: given.Token}
	switch given.Mechanism {
	case "PLAIN":
		return plain.Auth{User: given.User, Pass: given.Password}.AsMechanism()
	case "SCRAM-SHA-256":
		return secret.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return secret.AsSha512Mechanism()
	case "OAUTHBEARER":
		return oauth.Auth{Token: bearer()}.AsMechanism()
	}
	return nil
}

func franz(bootstrap string, given security, config *tls.Config) (string, error) {
	options := []kgo.Opt{
		kgo.SeedBrokers(bootstrap), kgo.DialTLSConfig(config), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RecordDeliveryTimeout(patience),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}),
	}
	if mechanism := franzMechanism(given); mechanism != nil {
		options = append(options, kgo.SASL(mechanism))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return other, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := client.Ping(ctx); errors.Is(err, kerr.SaslAuthenticationFailed) {
		return refused, nil
	}
	if err := client.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("record")}).FirstErr(); err != nil {
		return other, err
	}
	if fetched := client.PollFetches(ctx); fetched.NumRecords() == 0 {
		return other, fetched.Err()
	}
	return served, nil
}
