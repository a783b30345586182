package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"

	"github.com/IBM/sarama"
)

type handler struct {
	lines chan string
}

func (*handler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (h *handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message := <-claim.Messages():
			if message == nil {
				return nil
			}
			h.lines <- fmt.Sprintf("%s\t%s\t%s", message.Key, message.Value, message.Headers[0].Value)
			session.MarkMessage(message, "")
		case <-session.Context().Done():
			return nil
		}
	}
}

func check(err error) {
	if err != nil {
		log.Fatal("error: ", err)
	}
}

func main() {
	bootstrap, topic, group := []string{os.Args[1]}, os.Args[2], os.Args[3]
	count, _ := strconv.Atoi(os.Args[4])
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Producer.Return.Successes = true
	config.Consumer.Offsets.Initial = sarama.OffsetOldest

	admin, err := sarama.NewClusterAdmin(bootstrap, config)
	check(err)
	check(admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 3, ReplicationFactor: 1}, false))
	check(admin.Close())

	producer, err := sarama.NewSyncProducer(bootstrap, config)
	check(err)
	for n := 0; n < count; n++ {
		header := sarama.RecordHeader{Key: []byte("place"), Value: []byte(strconv.Itoa(n))}
		_, _, err := producer.SendMessage(&sarama.ProducerMessage{
			Topic: topic, Key: sarama.StringEncoder(fmt.Sprint("key-", n)), Value: sarama.StringEncoder(fmt.Sprint("value ", n)),
			Headers: []sarama.RecordHeader{header},
		})
		check(err)
	}
	check(producer.Close())

	consumer, err := sarama.NewConsumerGroup(bootstrap, group, config)
	check(err)
	ctx, cancel := context.WithCancel(context.Background())
	reader := &handler{lines: make(chan string)}
	ended := make(chan error)
	go func() { ended <- consumer.Consume(ctx, []string{topic}, reader) }()
	for n := 0; n < count; n++ {
		select {
		case line := <-reader.lines:
			fmt.Println(line)
		case err := <-ended:
			log.Fatal("error: ", err)
		}
	}
	cancel()
	<-ended
	check(consumer.Close())
}
