// Receives and acknowledges over one gRPC connection with a fixed number of calls under way, fast enough to keep a broker
// busy. One step for each line on the standard input, one JSON line for each step:
//
//	receive WORKERS COUNT          leases COUNT messages, 32 a call, and keeps their handles
//	ack WORKERS ENTRIES            acknowledges all handles, ENTRIES a call
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"sync"
	"sync/atomic"
	"time"

	v2 "github.com/apache/rocketmq-clients/golang/v5/protocol/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/durationpb"
)

const (
	batch            = 32
	emptyReceivesMax = 10
	callTimeout      = 30 * time.Second
)

type bench struct {
	client       v2.MessagingServiceClient
	group, topic *v2.Resource
	broker       *v2.Broker
	mutex        sync.Mutex
	entries      []*v2.AckMessageEntry
}

func (b *bench) context() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	return withHeaders(ctx), cancel
}

func withHeaders(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "x-mq-client-id", "bench@1@0@2", "x-mq-language", "JAVA",
		"x-mq-protocol", "v2", "x-mq-client-version", "5.1.4", "x-mq-date-time", "20261121T000000Z",
		"x-mq-request-id", "1f0c7d2e-bench")
}

// announce opens the Telemetry stream with the settings of a simple consumer; Apache's proxy asks for it.
func (b *bench) announce() error {
	stream, err := b.client.Telemetry(withHeaders(context.Background()))
	if err != nil {
		return err
	}
	kind := v2.ClientType_SIMPLE_CONSUMER
	settings := &v2.Settings{
		ClientType:     &kind,
		RequestTimeout: durationpb.New(callTimeout),
		PubSub: &v2.Settings_Subscription{Subscription: &v2.Subscription{
			Group: b.group,
			Subscriptions: []*v2.SubscriptionEntry{{
				Topic:      b.topic,
				Expression: &v2.FilterExpression{Type: v2.FilterType_TAG, Expression: "*"},
			}},
			LongPollingTimeout: durationpb.New(time.Second),
		}},
		UserAgent: &v2.UA{Language: v2.Language_JAVA, Version: "5.1.4", Hostname: "bench", Platform: "linux"},
	}
	if err = stream.Send(&v2.TelemetryCommand{Command: &v2.TelemetryCommand_Settings{Settings: settings}}); err != nil {
		return err
	}
	_, err = stream.Recv()
	go func() {
		for err := error(nil); err == nil; _, err = stream.Recv() {
		}
	}()
	return err
}

// receiveOnce returns the number of messages that came, and keeps their handles.
func (b *bench) receiveOnce() (int, error) {
	ctx, cancel := b.context()
	defer cancel()
	stream, err := b.client.ReceiveMessage(ctx, &v2.ReceiveMessageRequest{
		Group:              b.group,
		MessageQueue:       &v2.MessageQueue{Topic: b.topic, Id: -1, Broker: b.broker},
		FilterExpression:   &v2.FilterExpression{Type: v2.FilterType_TAG, Expression: "*"},
		BatchSize:          batch,
		InvisibleDuration:  durationpb.New(5 * time.Minute),
		LongPollingTimeout: durationpb.New(time.Second),
	})
	if err != nil {
		return 0, err
	}
	var got []*v2.AckMessageEntry
	for {
		answer, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, err
		}
		if message := answer.GetMessage(); message != nil {
			system := message.GetSystemProperties()
			got = append(got, &v2.AckMessageEntry{MessageId: system.GetMessageId(), ReceiptHandle: system.GetReceiptHandle()})
		} else if status := answer.GetStatus(); status != nil {
			if code := status.GetCode(); code != v2.Code_OK && code != v2.Code_MESSAGE_NOT_FOUND {
				return 0, fmt.Errorf("receive: %v", status)
			}
		}
	}
	b.mutex.Lock()
	b.entries = append(b.entries, got...)
	b.mutex.Unlock()
	return len(got), nil
}

func (b *bench) receive(workers, count int) (messages, calls int, err error) {
	var taken, made atomic.Int64
	err = parallel(workers, func(int) error {
		for empty := 0; taken.Load() < int64(count) && empty < emptyReceivesMax; {
			got, err := b.receiveOnce()
			if err != nil {
				return err
			}
			made.Add(1)
			taken.Add(int64(got))
			if empty++; got > 0 {
				empty = 0
			}
		}
		return nil
	})
	return int(taken.Load()), int(made.Load()), err
}

func (b *bench) ack(workers, size int) (messages, calls int, err error) {
	entries := b.entries
	b.entries = nil
	var next, made atomic.Int64
	err = parallel(workers, func(int) error {
		for {
			end := int(next.Add(int64(size)))
			begin := end - size
			if begin >= len(entries) {
				return nil
			}
			ctx, cancel := b.context()
			answer, err := b.client.AckMessage(ctx, &v2.AckMessageRequest{
				Group: b.group, Topic: b.topic, Entries: entries[begin:min(end, len(entries))],
			})
			cancel()
			if err != nil {
				return err
			}
			if code := answer.GetStatus().GetCode(); code != v2.Code_OK {
				return fmt.Errorf("ack: %v", answer.GetStatus())
			}
			made.Add(1)
		}
	})
	return len(entries), int(made.Load()), err
}

func parallel(workers int, work func(int) error) error {
	failures := make(chan error, workers)
	for worker := range workers {
		go func() { failures <- work(worker) }()
	}
	var first error
	for range workers {
		if err := <-failures; err != nil && first == nil {
			first = err
		}
	}
	return first
}

func main() {
	address := flag.String("address", "", "host:port of the broker's client port")
	topic := flag.String("topic", "", "topic")
	group := flag.String("group", "", "consumer group")
	broker := flag.String("broker", "", "broker name, as the route says")
	flag.Parse()
	connection, err := grpc.NewClient(*address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithInitialConnWindowSize(16<<20), grpc.WithInitialWindowSize(4<<20))
	if err != nil {
		log.Fatal(err)
	}
	b := &bench{
		client: v2.NewMessagingServiceClient(connection),
		group:  &v2.Resource{Name: *group}, topic: &v2.Resource{Name: *topic}, broker: &v2.Broker{Name: *broker},
	}
	if err = b.announce(); err != nil {
		log.Fatal(err)
	}
	// The first receive fixes where a new group starts; the backlog is made after it.
	if got, err := b.receiveOnce(); err != nil || got > 0 {
		log.Fatalf("first receive: %d messages, %v", got, err)
	}
	fmt.Println(`{"event":"ready"}`)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var verb string
		var workers, amount int
		if _, err = fmt.Sscan(lines.Text(), &verb, &workers, &amount); err != nil {
			log.Fatal(err)
		}
		step := b.receive
		if verb == "ack" {
			step = b.ack
		}
		start := time.Now()
		messages, calls, err := step(workers, amount)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("{\"event\":\"done\",\"messages\":%d,\"calls\":%d,\"seconds\":%f}\n", messages, calls, time.Since(start).Seconds())
	}
}
