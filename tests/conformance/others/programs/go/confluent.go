package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

func check(err error) {
	if err != nil {
		log.Fatal("error: ", err)
	}
}

func main() {
	bootstrap, topic, group := os.Args[1], os.Args[2], os.Args[3]
	count, _ := strconv.Atoi(os.Args[4])

	admin, err := kafka.NewAdminClient(&kafka.ConfigMap{"bootstrap.servers": bootstrap})
	check(err)
	_, err = admin.CreateTopics(context.Background(), []kafka.TopicSpecification{{Topic: topic, NumPartitions: 3, ReplicationFactor: 1}})
	check(err)
	admin.Close()

	producer, err := kafka.NewProducer(&kafka.ConfigMap{"bootstrap.servers": bootstrap})
	check(err)
	delivered := make(chan kafka.Event, count)
	for n := 0; n < count; n++ {
		check(producer.Produce(&kafka.Message{
			TopicPartition: kafka.TopicPartition{Topic: &topic, Partition: kafka.PartitionAny},
			Key:            []byte(fmt.Sprint("key-", n)), Value: []byte(fmt.Sprint("value ", n)),
			Headers: []kafka.Header{{Key: "place", Value: []byte(strconv.Itoa(n))}},
		}, delivered))
	}
	for n := 0; n < count; n++ {
		check((<-delivered).(*kafka.Message).TopicPartition.Error)
	}
	producer.Close()

	consumer, err := kafka.NewConsumer(&kafka.ConfigMap{"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
	check(err)
	check(consumer.Subscribe(topic, nil))
	for n := 0; n < count; n++ {
		message, err := consumer.ReadMessage(time.Minute)
		check(err)
		fmt.Printf("%s\t%s\t%s\n", message.Key, message.Value, message.Headers[0].Value)
	}
	check(consumer.Close())
}
