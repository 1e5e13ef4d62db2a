// The probe service seen by grpc-go. Runs every check against the address given and prints one JSON line for each:
// {"check": name, "error": text or ""}. With -drain it keeps one call open over a server's stop and calls again after it.
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

const service = "/razzo.test.Probe/"

// raw passes bytes through instead of protobuf messages.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error)      { return *v.(*[]byte), nil }
func (raw) Unmarshal(data []byte, v any) error { *v.(*[]byte) = bytes.Clone(data); return nil }
func (raw) Name() string                       { return "proto" }

type client struct{ conn *grpc.ClientConn }

func (c client) unary(ctx context.Context, method string, request []byte, options ...grpc.CallOption) ([]byte, error) {
	var answer []byte
	err := c.conn.Invoke(ctx, service+method, &request, &answer, options...)
	return answer, err
}

func (c client) stream(ctx context.Context, method string, clientSide bool) (grpc.ClientStream, error) {
	desc := grpc.StreamDesc{ServerStreams: true, ClientStreams: clientSide}
	return c.conn.NewStream(ctx, &desc, service+method)
}

func send(stream grpc.ClientStream, message []byte) error { return stream.SendMsg(&message) }

func receive(stream grpc.ClientStream) ([]byte, error) {
	var message []byte
	err := stream.RecvMsg(&message)
	return message, err
}

func wantStatus(err error, code codes.Code, text string) error {
	got := status.Convert(err)
	if got.Code() != code || (text != "" && got.Message() != text) {
		return fmt.Errorf("want %v %q, got %v %q", code, text, got.Code(), got.Message())
	}
	return nil
}

func echoSizes(ctx context.Context, c client) error {
	for _, method := range []string{"Echo", "EchoBatch"} {
		for _, size := range []int{0, 1, 1024, 16384, 300_000, 3 << 20} {
			request := bytes.Repeat([]byte{7}, size)
			answer, err := c.unary(ctx, method, request)
			if err != nil || !bytes.Equal(answer, request) {
				return fmt.Errorf("%s of %d bytes: %d bytes, %v", method, size, len(answer), err)
			}
		}
	}
	return nil
}

func manyAtOnce(ctx context.Context, c client) error {
	problems := make(chan error, 64)
	var group sync.WaitGroup
	for worker := range 64 {
		group.Go(func() {
			for number := range 50 {
				request := fmt.Appendf(nil, "%d of %d", number, worker)
				answer, err := c.unary(ctx, "EchoBatch", request)
				if err != nil || !bytes.Equal(answer, request) {
					problems <- fmt.Errorf("%q: %q %v", request, answer, err)
					return
				}
			}
		})
	}
	group.Wait()
	close(problems)
	return <-problems
}

func statuses(ctx context.Context, c client) error {
	for _, method := range []string{"Fail", "FailBatch"} {
		for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
			_, err := c.unary(ctx, method, fmt.Appendf(nil, "%d 50 %% of é\nno", code))
			if problem := wantStatus(err, code, "50 % of é\nno"); problem != nil {
				return problem
			}
		}
	}
	return nil
}

func unknownMethod(ctx context.Context, c client) error {
	for _, size := range []int{0, 1, 200_000} {
		_, err := c.unary(ctx, "Nothing", make([]byte, size))
		if problem := wantStatus(err, codes.Unimplemented, ""); problem != nil {
			return fmt.Errorf("%d bytes: %w", size, problem)
		}
	}
	return nil
}

func metadataBothWays(ctx context.Context, c client) error {
	binary := "\x00\xff\xfe binary"
	ctx = metadata.AppendToOutgoingContext(ctx, "i-text", "one", "i-text", "two", "i-data-bin", binary, "t-data-bin", binary)
	var header, trailer metadata.MD
	if _, err := c.unary(ctx, "Mirror", nil, grpc.Header(&header), grpc.Trailer(&trailer)); err != nil {
		return err
	}
	if fmt.Sprint(header["i-text"]) != "[one two]" || header.Get("i-data-bin")[0] != binary || trailer.Get("t-data-bin")[0] != binary {
		return fmt.Errorf("headers %q, trailers %q", header, trailer)
	}
	return nil
}

func deadline(ctx context.Context, c client) error {
	for _, method := range []string{"Wait", "HoldBatch"} {
		short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		_, err := c.unary(short, method, nil)
		cancel()
		if problem := wantStatus(err, codes.DeadlineExceeded, ""); problem != nil {
			return problem
		}
	}
	return nil
}

// connection names the client's end of the connection in use.
func connection(ctx context.Context, c client) (string, error) {
	answer, err := c.unary(ctx, "Describe", nil)
	if err != nil {
		return "", err
	}
	var told struct{ Peer string }
	err = json.Unmarshal(answer, &told)
	return told.Peer, err
}

// 12,800 calls with deadlines of 0.2 to 6 ms, half of them to a method that never answers: no reason to be sent away.
func deadlineStorm(ctx context.Context, c client) error {
	before, err := connection(ctx, c)
	if err != nil {
		return err
	}
	var group sync.WaitGroup
	for worker := range 64 {
		group.Go(func() {
			for number := range 200 {
				short, cancel := context.WithTimeout(ctx, time.Duration(200+200*((worker+number)%30))*time.Microsecond)
				_, _ = c.unary(short, []string{"Echo", "Wait"}[number%2], make([]byte, 1000))
				cancel()
			}
		})
	}
	group.Wait()
	after, err := connection(ctx, c)
	if err == nil && after != before {
		err = fmt.Errorf("the connection was lost: %s, then %s", before, after)
	}
	return err
}

func serverStream(ctx context.Context, c client) error {
	for _, method := range []string{"Count", "Raw"} {
		for _, shape := range []struct{ count, size int }{{0, 0}, {1000, 0}, {500, 1000}, {40, 500_000}} {
			stream, err := c.stream(ctx, method, false)
			if err != nil {
				return err
			}
			if err = errors.Join(send(stream, fmt.Appendf(nil, "%d %d", shape.count, shape.size)), stream.CloseSend()); err != nil {
				return err
			}
			for number := range shape.count {
				message, err := receive(stream)
				expected := len(fmt.Sprintf("%d ", number)) + shape.size
				if err != nil || len(message) != expected {
					return fmt.Errorf("%s message %d: %d bytes, %v", method, number, len(message), err)
				}
			}
			if _, err = receive(stream); err != io.EOF {
				return fmt.Errorf("%s does not end: %v", method, err)
			}
		}
	}
	return nil
}

func streamThatFails(ctx context.Context, c client) error {
	stream, err := c.stream(ctx, "FailStream", false)
	if err != nil {
		return err
	}
	if err = errors.Join(send(stream, []byte("8 too much")), stream.CloseSend()); err != nil {
		return err
	}
	if message, err := receive(stream); err != nil || string(message) != "first" {
		return fmt.Errorf("first message %q, %v", message, err)
	}
	_, err = receive(stream)
	return wantStatus(err, codes.ResourceExhausted, "too much")
}

func cancelInTheMiddle(ctx context.Context, c client) error {
	cancelled, cancel := context.WithCancel(ctx)
	stream, err := c.stream(cancelled, "Flood", false)
	if err != nil {
		cancel()
		return err
	}
	err = errors.Join(send(stream, []byte("30000")), stream.CloseSend())
	for number := 0; number < 50 && err == nil; number++ {
		_, err = receive(stream)
	}
	cancel()
	if err != nil {
		return err
	}
	for err == nil {
		_, err = receive(stream)
	}
	return wantStatus(err, codes.Canceled, "")
}

func conversation(ctx context.Context, c client) error {
	stream, err := c.stream(ctx, "Chat", true)
	if err != nil {
		return err
	}
	header, err := stream.Header() // before the first message: tonic and others wait for it
	if err != nil || header.Get("x-welcome") == nil {
		return fmt.Errorf("headers %v, %v", header, err)
	}
	for number := range 200 {
		request := fmt.Appendf(nil, "%d", number)
		if err = send(stream, request); err != nil {
			return err
		}
		if answer, err := receive(stream); err != nil || !bytes.Equal(answer, request) {
			return fmt.Errorf("%q: %q %v", request, answer, err)
		}
	}
	if err = stream.CloseSend(); err != nil {
		return err
	}
	if _, err = receive(stream); err != io.EOF {
		return fmt.Errorf("no end: %v", err)
	}
	return nil
}

func failWhileWriting(ctx context.Context, c client) error {
	stream, err := c.stream(ctx, "FailChat", true)
	if err != nil {
		return err
	}
	_ = send(stream, []byte("3 not like this"))
	_, err = receive(stream)
	return wantStatus(err, codes.InvalidArgument, "not like this")
}

func tooLarge(ctx context.Context, c client) error {
	for _, method := range []string{"Echo", "EchoBatch"} {
		_, err := c.unary(ctx, method, make([]byte, 9<<20)) // the test sets a bound of 8 MiB
		if problem := wantStatus(err, codes.ResourceExhausted, ""); problem != nil {
			return problem
		}
	}
	return nil
}

func gzip(ctx context.Context, c client) error {
	request := make([]byte, 10_000)
	answer, err := c.unary(ctx, "Echo", request, grpc.UseCompressor("gzip"))
	if status.Code(err) == codes.Unimplemented {
		return nil
	}
	if err != nil || !bytes.Equal(answer, request) {
		return fmt.Errorf("%d bytes, %v", len(answer), err)
	}
	return nil
}

func crash(ctx context.Context, c client) error {
	for _, method := range []string{"Crash", "CrashBatch"} {
		_, err := c.unary(ctx, method, nil)
		if problem := wantStatus(err, codes.Internal, ""); problem != nil {
			return problem
		}
	}
	return nil
}

// drain holds one call over the stop of a server, then calls the one that took its place.
func drain(ctx context.Context, c client) error {
	answer, err := c.unary(ctx, "HoldBatch", []byte("held"))
	if err != nil || string(answer) != "in time" {
		return fmt.Errorf("held call: %q, %v", answer, err)
	}
	fmt.Println(`{"check": "held", "error": ""}`)
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	_, err = c.unary(ctx, "Echo", []byte("again"), grpc.WaitForReady(true))
	return err
}

func main() {
	secure := flag.Bool("tls", false, "TLS without verification, as the official Go client does")
	draining := flag.Bool("drain", false, "hold a call over a stop")
	flag.Parse()
	var creds credentials.TransportCredentials = insecure.NewCredentials()
	if *secure {
		creds = credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})
	}
	options := grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{}), grpc.MaxCallRecvMsgSize(64<<20))
	conn, err := grpc.NewClient("passthrough:///"+flag.Arg(0), grpc.WithTransportCredentials(creds), options)
	if err != nil {
		panic(err)
	}
	checks := []struct {
		name string
		run  func(context.Context, client) error
	}{
		{"echo sizes", echoSizes}, {"many at once", manyAtOnce}, {"statuses", statuses}, {"unknown method", unknownMethod},
		{"metadata", metadataBothWays}, {"deadline", deadline}, {"server stream", serverStream},
		{"stream that fails", streamThatFails}, {"cancel", cancelInTheMiddle}, {"conversation", conversation},
		{"fail while writing", failWhileWriting}, {"too large", tooLarge}, {"gzip", gzip}, {"crash", crash},
		{"deadline storm", deadlineStorm},
	}
	if *draining {
		checks = checks[:0]
		checks = append(checks, struct {
			name string
			run  func(context.Context, client) error
		}{"drain", drain})
	}
	for _, check := range checks {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		text := ""
		if err := check.run(ctx, client{conn}); err != nil {
			text = err.Error()
		}
		cancel()
		line, _ := json.Marshal(map[string]string{"check": check.name, "error": text})
		fmt.Println(string(line))
	}
}
