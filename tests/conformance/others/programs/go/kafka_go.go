package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"

	"github.com/segmentio/kafka-go"
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

	client := &kafka.Client{Addr: kafka.TCP(bootstrap)}
	created, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{
		Topics: []kafka.TopicConfig{{Topic: topic, NumPartitions: 3, ReplicationFactor: 1}},
	})
	check(err)
	check(created.Errors[topic])

	writer := &kafka.Writer{Addr: kafka.TCP(bootstrap), Topic: topic, Balancer: &kafka.Hash{}, RequiredAcks: kafka.RequireAll}
	var messages []kafka.Message
	for n := 0; n < count; n++ {
		messages = append(messages, kafka.Message{
			Key: []byte(fmt.Sprint("key-", n)), Value: []byte(fmt.Sprint("value ", n)),
			Headers: []kafka.Header{{Key: "place", Value: []byte(strconv.Itoa(n))}},
		})
	}
	check(writer.WriteMessages(ctx, messages...))
	check(writer.Close())

	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{bootstrap}, GroupID: group, Topic: topic, StartOffset: kafka.FirstOffset})
	for n := 0; n < count; n++ {
		message, err := reader.ReadMessage(ctx)
		check(err)
		fmt.Printf("%s\t%s\t%s\n", message.Key, message.Value, message.Headers[0].Value)
	}
	check(reader.Close())
}
