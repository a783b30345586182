// Package wire is what both drivers share: one operation a line on stdin, one answer a line on stdout.
package wire

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
)

// Args are the arguments of an operation; the fields that it does not have stay empty.
type Args struct {
	Topic, Group, Member, Strategy, Codec, Acks, Kind, Name, Reset, ID string
	Transactor, Pipeline, Into, End                                    string
	Partitions, Partition, Total                                       int32
	Replicas                                                           int16
	Count                                                              int
	Offset                                                             int64
	BeforeOffset                                                       int64   `json:"before_offset"`
	InstanceID                                                         *string `json:"instance_id"`
	SessionTimeoutMs                                                   int     `json:"session_timeout_ms"`
	TimeoutMs                                                          int     `json:"timeout_ms"`
	WaitS                                                              int     `json:"wait_s"`
	Isolation                                                          *string
	Idempotent, Commit, Last                                           bool
	States                                                             []string
	Configs                                                            map[string]string
	Changes                                                            [][3]string
	Records                                                            []Record
	Offsets                                                            []Offset
	At                                                                 any
}

// Record is a record as a scenario sees it; nil is null.
type Record struct {
	Key       *string      `json:"k"`
	Value     *string      `json:"v"`
	Headers   [][2]*string `json:"h"`
	Timestamp *int64       `json:"t"`
	Partition int32        `json:"p"`
	Offset    int64        `json:"o"`
}

// Pair is a topic's partition.
type Pair struct {
	Topic     string
	Partition int32
}

func (p Pair) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{p.Topic, p.Partition})
}

// Offset is a place in a partition: topic, partition, offset.
type Offset struct {
	Pair
	At int64
}

func (o Offset) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{o.Topic, o.Partition, o.At})
}

func (o *Offset) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&o.Topic, &o.Partition, &o.At})
}

// State is what a member of a group has seen since it was last asked.
type State struct {
	Assignment []Pair   `json:"assignment"`
	Records    []Record `json:"records"`
	Revoked    []Pair   `json:"revoked"`
	Rebalances int      `json:"rebalances"`
}

// Refused is a refusal by its name, where the client knows no number.
type Refused string

func (r Refused) Error() string { return string(r) }

// Unavailable says why the client cannot do what is asked.
type Unavailable string

func (u Unavailable) Error() string { return string(u) }

// Place is a record of a share group's topic, and when something happened to it.
type Place struct {
	Partition int32 `json:"p"`
	Offset    int64 `json:"o"`
	AtMs      int64 `json:"t"`
}

// Delivery is a record that a member of a share group was given, with its delivery count.
type Delivery struct {
	Place
	Count int32  `json:"n"`
	Value string `json:"v"`
}

// ShareState is what a member of a share group has seen since it was last asked: the records that it was given, and
// those whose acknowledgement the broker has confirmed.
type ShareState struct {
	Delivered []Delivery `json:"delivered"`
	Confirmed []Place    `json:"confirmed"`
}

// Text and Bytes translate between a record's bytes and what travels.
func Text(data []byte) *string {
	if data == nil {
		return nil
	}
	text := base64.StdEncoding.EncodeToString(data)
	return &text
}

func Bytes(text *string) []byte {
	if text == nil {
		return nil
	}
	data, err := base64.StdEncoding.DecodeString(*text)
	if err != nil {
		panic(err)
	}
	if data == nil {
		data = []byte{}
	}
	return data
}

// Operations by name. Refusal finds the broker's error in what a call returned: its name or its number, if it has one.
type (
	Operations map[string]func(Args) (any, error)
	Refusal    func(error) (name string, code int16)
)

// Serve answers until stdin ends.
func Serve(operations Operations, refusal Refusal) {
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	answers := json.NewEncoder(os.Stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		if err := answers.Encode(answer(operations, refusal, line)); err != nil {
			return
		}
	}
}

func answer(operations Operations, refusal Refusal, line []byte) (reply map[string]any) {
	defer func() {
		if panicked := recover(); panicked != nil {
			reply = map[string]any{"crashed": fmt.Sprint(panicked)}
		}
	}()
	var request struct {
		Op   string
		Args Args
	}
	if err := json.Unmarshal(line, &request); err != nil {
		return map[string]any{"crashed": err.Error()}
	}
	operation, known := operations[request.Op]
	if !known {
		return map[string]any{"unavailable": "the client has no call for " + strings.ReplaceAll(request.Op, "_", " ")}
	}
	result, err := operation(request.Args)
	if err == nil {
		return map[string]any{"result": result}
	}
	var unavailable Unavailable
	var refused Refused
	if errors.As(err, &unavailable) {
		return map[string]any{"unavailable": string(unavailable)}
	}
	if errors.As(err, &refused) {
		return map[string]any{"refused": string(refused), "text": err.Error()}
	}
	if name, code := refusal(err); name != "" {
		return map[string]any{"refused": name, "text": err.Error()}
	} else if code != 0 {
		return map[string]any{"refused_code": code, "text": err.Error()}
	}
	return map[string]any{"crashed": err.Error()}
}
