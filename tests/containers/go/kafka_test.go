// The image under the Kafka module of Testcontainers for Go.
package containers

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/modules/kafka"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestTheModuleStartsIt(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	container, err := kafka.Run(ctx, os.Getenv("MOLDAU_IMAGE")+":latest", kafka.WithClusterID("MkU3OEVBNTcwNTJENDM2Qk"))
	testcontainers.CleanupContainer(t, container)
	if err != nil {
		t.Fatal(err)
	}
	brokers, err := container.Brokers(ctx)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(brokers...), kgo.AllowAutoTopicCreation(), kgo.ConsumeTopics("orders"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	record := &kgo.Record{Topic: "orders", Value: []byte("three rolls")}
	if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
		t.Fatal(err)
	}
	for {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatal(ctx.Err())
		}
		if records := fetches.Records(); len(records) > 0 {
			if string(records[0].Value) != "three rolls" {
				t.Fatalf("%q came", records[0].Value)
			}
			return
		}
	}
}
