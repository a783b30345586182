package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func check(err error) {
	if err != nil {
		log.Fatal("error: ", err)
	}
}

// Each record is released once, its lock is renewed when it comes again, and only then it is accepted.
func main() {
	bootstrap, topic, group := os.Args[1], os.Args[2], os.Args[3]
	count, _ := strconv.Atoi(os.Args[4])
	ctx := context.Background()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap), kgo.ConsumeTopics(topic), kgo.ShareGroup(group), kgo.ShareMaxRecords(7),
		kgo.ShareAckCallback(func(_ *kgo.Client, results kgo.ShareAckResults) {
			for _, result := range results {
				check(result.Err)
			}
		}),
	)
	check(err)
	_, err = kadm.NewClient(client).CreateTopic(ctx, 3, 1, nil, topic)
	check(err)
	earliest := "earliest"
	setting := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	setting.Name, setting.Value = "share.auto.offset.reset", &earliest
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceType(32), group
	resource.Configs = append(resource.Configs, setting)
	request := kmsg.NewPtrIncrementalAlterConfigsRequest()
	request.Resources = append(request.Resources, resource)
	_, err = request.RequestWith(ctx, client)
	check(err)
	for n := 0; n < count; n++ {
		check(client.ProduceSync(ctx, &kgo.Record{
			Topic: topic, Key: []byte(fmt.Sprint("key-", n)), Value: []byte(fmt.Sprint("value ", n)),
			Headers: []kgo.RecordHeader{{Key: "place", Value: []byte(strconv.Itoa(n))}},
		}).FirstErr())
	}
	released := map[string]bool{}
	for left := count; left > 0; {
		fetches := client.PollRecords(ctx, 5)
		check(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) {
			if key := string(record.Key); !released[key] {
				released[key] = true
				record.Ack(kgo.AckRelease)
				return
			}
			record.Ack(kgo.AckRenew)
			fmt.Printf("%s\t%s\t%s\n", record.Key, record.Value, record.Headers[0].Value)
			record.Ack(kgo.AckAccept)
			left--
		})
	}
	check(client.FlushAcks(ctx))
	client.Close()
}
