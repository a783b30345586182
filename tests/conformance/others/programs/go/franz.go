package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func check(err error) {
	if err != nil {
		log.Fatal("error: ", err)
	}
}

func main() {
	bootstrap, topic, group := os.Args[1], os.Args[2], os.Args[3]
	count, _ := strconv.Atoi(os.Args[4])
	ctx := context.Background()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap), kgo.ConsumeTopics(topic), kgo.ConsumerGroup(group),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	check(err)
	admin := kadm.NewClient(client)
	_, err = admin.CreateTopic(ctx, 3, 1, nil, topic)
	check(err)
	for n := 0; n < count; n++ {
		check(client.ProduceSync(ctx, &kgo.Record{
			Topic: topic, Key: []byte(fmt.Sprint("key-", n)), Value: []byte(fmt.Sprint("value ", n)),
			Headers: []kgo.RecordHeader{{Key: "place", Value: []byte(strconv.Itoa(n))}},
		}).FirstErr())
	}
	for left := count; left > 0; {
		fetches := client.PollFetches(ctx)
		check(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) {
			fmt.Printf("%s\t%s\t%s\n", record.Key, record.Value, record.Headers[0].Value)
			left--
		})
	}
	check(client.CommitUncommittedOffsets(ctx))
	lags, err := admin.Lag(ctx, group)
	check(err)
	check(lags.Error())
	if lag := lags[group].Lag.Total(); lag != 0 {
		log.Fatalf("error: the lag after the commit is %d", lag)
	}
	client.Close()
}
