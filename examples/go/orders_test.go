// Tests of a Kafka client in Go against a broker that the tests start.
package example

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type moldau struct {
	Listeners map[string]string `json:"listeners"`
	Control   string            `json:"control"`
}

// start runs a broker in memory until the test ends.
func start(t *testing.T) *moldau {
	t.Helper()
	name := os.Getenv("MOLDAU")
	if name == "" {
		name = "moldau"
	}
	command := exec.Command(name, "serve", "--memory", "--port", "0", "--control", "127.0.0.1:0", "--greeting", "json", "--until-eof")
	input, err := command.StdinPipe() // the broker ends when this closes, also where the tests are killed
	if err != nil {
		t.Fatal(err)
	}
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		input.Close()
		command.Wait()
	})
	line, err := bufio.NewReader(output).ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	broker := &moldau{}
	if err := json.Unmarshal(line, broker); err != nil {
		t.Fatal(err)
	}
	return broker
}

// fault puts a fault in force, which docs/faults.md describes.
func (m *moldau) fault(t *testing.T, described string) {
	t.Helper()
	answer, err := http.Post(m.Control+"/v1/faults", "application/json", bytes.NewBufferString(described))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("the fault is refused: %s", answer.Status)
	}
}

func client(t *testing.T, m *moldau, options ...kgo.Opt) *kgo.Client {
	t.Helper()
	made, err := kgo.NewClient(append(options, kgo.SeedBrokers(m.Listeners["PLAINTEXT"]), kgo.AllowAutoTopicCreation())...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(made.Close)
	return made
}

func TestAnOrderIsRead(t *testing.T) {
	broker := start(t)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	record := &kgo.Record{Topic: "orders", Value: []byte("three rolls")}
	if err := client(t, broker).ProduceSync(ctx, record).FirstErr(); err != nil {
		t.Fatal(err)
	}
	consumer := client(t, broker, kgo.ConsumerGroup("kitchen"), kgo.ConsumeTopics("orders"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	fetched := consumer.PollFetches(ctx).Records()
	if len(fetched) != 1 || string(fetched[0].Value) != "three rolls" {
		t.Fatalf("read %v", fetched)
	}
}

func TestAProducerTriesAgainWhereTheLeaderHasMoved(t *testing.T) {
	broker := start(t)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	broker.fault(t, `{"scope": {"api": "Produce"}, "when": {"times": 2}, "do": {"error": "NOT_LEADER_OR_FOLLOWER"}}`)
	if err := client(t, broker).ProduceSync(ctx, &kgo.Record{Topic: "orders", Value: []byte("x")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
}
