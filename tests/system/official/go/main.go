// The official Go client as a JSON-lines program; ../README.md says what it takes and writes.
package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	rocketmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
	v2 "github.com/apache/rocketmq-clients/golang/v5/protocol/v2"
)

const (
	warmUpProperty = "warm-up"
	invisible      = 60 * time.Second
	closeLimit     = 3 * time.Second
	pause          = 20 * time.Millisecond
)

var stopping atomic.Bool

// entry is one line of the manifest: the body is size bytes of the blob from offset.
type entry struct {
	ID         int               `json:"id"`
	Offset     int64             `json:"offset"`
	Size       int64             `json:"size"`
	Tag        *string           `json:"tag"`
	Keys       []string          `json:"keys"`
	Properties map[string]string `json:"properties"`
}

// lines writes one JSON object a line; listeners call it from many goroutines.
type lines struct {
	mu  sync.Mutex
	out *json.Encoder
}

func (l *lines) write(value map[string]any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.out.Encode(value); err != nil {
		os.Exit(1)
	}
}

func main() {
	endpoint := flag.String("endpoint", "", "host:port")
	tls := flag.String("tls", "false", "true or false")
	mode := flag.String("mode", "", "send, simple or push")
	topic := flag.String("topic", "", "topic")
	group := flag.String("group", "", "consumer group")
	manifest := flag.String("manifest", "", "JSON lines, one message each")
	blob := flag.String("blob", "", "file of which bodies are parts")
	flag.Parse()

	rocketmq.ResetLogger()
	// The client's default is TLS; only the other choice is said.
	if *tls == "false" {
		rocketmq.EnableSsl = false
	}
	config := &rocketmq.Config{
		Endpoint:      *endpoint,
		ConsumerGroup: *group,
		Credentials:   &credentials.SessionCredentials{},
	}
	out := &lines{out: json.NewEncoder(os.Stdout)}
	var err error
	switch *mode {
	case "send":
		err = send(config, *topic, *manifest, *blob, out)
	case "simple":
		err = simple(config, *topic, out)
	case "push":
		err = push(config, *topic, out)
	default:
		err = fmt.Errorf("unknown mode %q", *mode)
	}
	if err != nil {
		if stopping.Load() {
			select {} // a receive that the stop cut off; untilInputEnds has the last word
		}
		out.write(map[string]any{"event": "error", "what": err.Error()})
		os.Exit(1)
	}
}

func send(config *rocketmq.Config, topic, manifest, blobPath string, out *lines) error {
	blob, err := os.ReadFile(blobPath)
	if err != nil {
		return err
	}
	producer, err := rocketmq.NewProducer(config, rocketmq.WithTopics(topic))
	if err != nil {
		return err
	}
	if err := producer.Start(); err != nil {
		return err
	}
	out.write(map[string]any{"event": "started"})
	file, err := os.Open(manifest)
	if err != nil {
		return err
	}
	defer file.Close()
	decoder := json.NewDecoder(bufio.NewReader(file))
	for {
		var next entry
		if err := decoder.Decode(&next); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		message := &rocketmq.Message{Topic: topic, Body: blob[next.Offset : next.Offset+next.Size]}
		if next.Tag != nil {
			message.SetTag(*next.Tag)
		}
		message.SetKeys(next.Keys...)
		for name, value := range next.Properties {
			message.AddProperty(name, value)
		}
		before := time.Now().UnixMilli()
		receipts, err := producer.Send(context.Background(), message)
		if err != nil {
			return fmt.Errorf("message %d: %w", next.ID, err)
		}
		out.write(map[string]any{
			"event": "sent", "id": next.ID, "message_id": receipts[0].MessageID, "offset": receipts[0].Offset,
			"before_ms": before, "after_ms": time.Now().UnixMilli(),
		})
	}
	out.write(map[string]any{"event": "done"})
	untilInputEnds(func() { _ = producer.GracefulStop() })
	return nil
}

func simple(config *rocketmq.Config, topic string, out *lines) error {
	consumer, err := rocketmq.NewSimpleConsumer(config,
		rocketmq.WithSimpleAwaitDuration(5*time.Second),
		rocketmq.WithSimpleSubscriptionExpressions(map[string]*rocketmq.FilterExpression{topic: rocketmq.SUB_ALL}))
	if err != nil {
		return err
	}
	if err := consumer.Start(); err != nil {
		return err
	}
	out.write(map[string]any{"event": "started"})
	go untilInputEnds(func() { _ = consumer.GracefulStop() })
	for {
		messages, err := consumer.Receive(context.Background(), 32, invisible)
		if status, ok := rocketmq.AsErrRpcStatus(err); ok && status.GetCode() == int32(v2.Code_MESSAGE_NOT_FOUND) {
			time.Sleep(pause)
			continue
		}
		if err != nil {
			return err
		}
		for _, message := range messages {
			report(message, out)
			if err := consumer.Ack(context.Background(), message); err != nil {
				return err
			}
		}
	}
}

func push(config *rocketmq.Config, topic string, out *lines) error {
	consumer, err := rocketmq.NewPushConsumer(config,
		rocketmq.WithPushAwaitDuration(5*time.Second),
		rocketmq.WithPushSubscriptionExpressions(map[string]*rocketmq.FilterExpression{topic: rocketmq.SUB_ALL}),
		rocketmq.WithPushMessageListener(&rocketmq.FuncMessageListener{
			Consume: func(message *rocketmq.MessageView) rocketmq.ConsumerResult {
				report(message, out)
				return rocketmq.SUCCESS
			},
		}))
	if err != nil {
		return err
	}
	if err := consumer.Start(); err != nil {
		return err
	}
	out.write(map[string]any{"event": "started"})
	untilInputEnds(func() { _ = consumer.GracefulStop() })
	return nil
}

func report(message *rocketmq.MessageView, out *lines) {
	properties := map[string]string{}
	for name, value := range message.GetProperties() {
		properties[name] = value
	}
	if _, warm := properties[warmUpProperty]; warm {
		out.write(map[string]any{"event": "warm"})
		return
	}
	digest := sha256.Sum256(message.GetBody())
	line := map[string]any{
		"event":      "received",
		"message_id": message.GetMessageId(),
		"topic":      message.GetTopic(),
		"size":       len(message.GetBody()),
		"sha256":     hex.EncodeToString(digest[:]),
		"tag":        message.GetTag(),
		"keys":       append([]string{}, message.GetKeys()...),
		"properties": properties,
		"born_host":  message.GetBornHost(),
		"attempt":    message.GetDeliveryAttempt(),
		"offset":     message.GetOffset(),
	}
	if born := message.GetBornTimestamp(); born != nil {
		line["born_ms"] = born.UnixMilli()
	}
	out.write(line)
}

// untilInputEnds waits for the end of the standard input, then stops the client and the process.
func untilInputEnds(stop func()) {
	_, _ = io.Copy(io.Discard, os.Stdin)
	stopping.Store(true)
	stopped := make(chan struct{})
	go func() {
		stop()
		close(stopped)
	}()
	select {
	case <-stopped:
	case <-time.After(closeLimit):
	}
	os.Exit(0)
}
