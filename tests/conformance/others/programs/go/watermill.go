package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
)

func check(err error) {
	if err != nil {
		log.Fatal("error: ", err)
	}
}

func main() {
	bootstrap, topic, group := []string{os.Args[1]}, os.Args[2], os.Args[3]
	count, _ := strconv.Atoi(os.Args[4])
	keyed := kafka.NewWithPartitioningMarshaler(func(_ string, message *message.Message) (string, error) {
		return message.Metadata.Get("key"), nil
	})

	config := kafka.DefaultSaramaSubscriberConfig()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	subscriber, err := kafka.NewSubscriber(kafka.SubscriberConfig{
		Brokers: bootstrap, Unmarshaler: keyed, ConsumerGroup: group, OverwriteSaramaConfig: config,
		InitializeTopicDetails: &sarama.TopicDetail{NumPartitions: 3, ReplicationFactor: 1},
	}, watermill.NopLogger{})
	check(err)
	check(subscriber.SubscribeInitialize(topic))

	publisher, err := kafka.NewPublisher(kafka.PublisherConfig{Brokers: bootstrap, Marshaler: keyed}, watermill.NopLogger{})
	check(err)
	for n := 0; n < count; n++ {
		sent := message.NewMessage(watermill.NewUUID(), []byte(fmt.Sprint("value ", n)))
		sent.Metadata.Set("key", fmt.Sprint("key-", n))
		sent.Metadata.Set("place", strconv.Itoa(n))
		check(publisher.Publish(topic, sent))
	}
	check(publisher.Close())

	messages, err := subscriber.Subscribe(context.Background(), topic)
	check(err)
	for n := 0; n < count; n++ {
		read := <-messages
		fmt.Printf("%s\t%s\t%s\n", read.Metadata.Get("key"), read.Payload, read.Metadata.Get("place"))
		read.Ack()
	}
	check(subscriber.Close())
}
