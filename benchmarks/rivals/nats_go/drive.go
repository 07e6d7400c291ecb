// Loads NATS JetStream by its Go client. Arguments and output: see the package's page.
//
// `fast` is the client's way for bulk: a fast-ingest batch, whose flow of acknowledgements the server
// sets. It needs a stream that allows it, so the driver sets that first.
package main

import (
	"context"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"
)

const (
	pendingMax = 4096
	warmUp     = 500 * time.Millisecond
	batch      = 1000
	flow       = 400
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func cpu() float64 {
	var usage syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}

type send func(subject string, body []byte, lasts time.Duration) (count int64)

func pipelined(js jetstream.JetStream) send {
	return func(subject string, body []byte, lasts time.Duration) (count int64) {
		for end := time.Now().Add(lasts); count%64 != 0 || time.Now().Before(end); count++ {
			_, err := js.PublishAsync(subject, body, jetstream.WithStallWait(30*time.Second))
			check(err)
		}
		<-js.PublishAsyncComplete()
		return
	}
}

func fast(ctx context.Context, js jetstream.JetStream, subject string) send {
	stream, err := js.Stream(ctx, subject)
	check(err)
	config := stream.CachedInfo().Config
	config.AllowBatchPublish = true
	_, err = js.UpdateStream(ctx, config)
	check(err)
	return func(subject string, body []byte, lasts time.Duration) (count int64) {
		publisher, err := jetstreamext.NewFastPublisher(
			js, jetstreamext.FastPublishFlowControl{Flow: flow, MaxOutstandingAcks: 3, AckTimeout: 30 * time.Second})
		check(err)
		for end := time.Now().Add(lasts); count%64 != 0 || time.Now().Before(end); count++ {
			_, err = publisher.Add(subject, body)
			check(err)
		}
		_, err = publisher.Close(ctx)
		check(err)
		return
	}
}

func load(by send, subject string, body []byte, lasts time.Duration) {
	before := by(subject, body, warmUp)
	began, spent := time.Now(), cpu()
	count := by(subject, body, lasts)
	fmt.Printf("{\"count\": %d, \"seconds\": %.6f, \"cpu_s\": %.4f, \"sent\": %d}\n",
		count, time.Since(began).Seconds(), cpu()-spent, before+count)
}

func single(ctx context.Context, js jetstream.JetStream, subject string, body []byte, lasts time.Duration) {
	var took []float64
	began, spent := time.Now(), cpu()
	for i := 0; i < 100 || time.Since(began) < lasts; i++ {
		if i == 100 {
			began, spent, took = time.Now(), cpu(), nil
		}
		at := time.Now()
		_, err := js.Publish(ctx, subject, body)
		check(err)
		took = append(took, float64(time.Since(at).Nanoseconds())/1e6)
	}
	sort.Float64s(took)
	fmt.Printf("{\"count\": %d, \"median_ms\": %.4f, \"p99_ms\": %.4f, \"cpu_s\": %.4f, \"sent\": %d}\n",
		len(took), took[len(took)/2], took[len(took)*99/100], cpu()-spent, len(took)+100)
}

func read(ctx context.Context, js jetstream.JetStream, subject string, lasts time.Duration, wanted int64) {
	consumer, err := js.CreateConsumer(ctx, subject, jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy})
	check(err)
	messages, err := consumer.Messages(jetstream.PullMaxMessages(4*batch), jetstream.PullThresholdMessages(3*batch))
	check(err)
	var got int64
	var began time.Time
	spent := cpu()
	for end := time.Now().Add(lasts + 5*time.Second); got < wanted && time.Now().Before(end); got++ {
		_, err = messages.Next()
		check(err)
		if got == 0 {
			began = time.Now()
		}
	}
	fmt.Printf("{\"count\": %d, \"seconds\": %.6f, \"cpu_s\": %.4f}\n", got, time.Since(began).Seconds(), cpu()-spent)
}

func main() {
	address, subject, work := os.Args[1], os.Args[2], os.Args[3]
	size, err := strconv.Atoi(os.Args[4])
	check(err)
	seconds, err := strconv.ParseFloat(os.Args[5], 64)
	check(err)
	wanted, err := strconv.ParseInt(os.Args[6], 10, 64)
	check(err)
	lasts, body, ctx := time.Duration(seconds*1e9), make([]byte, size), context.Background()
	connection, err := nats.Connect(address, nats.MaxReconnects(-1))
	check(err)
	js, err := jetstream.New(connection, jetstream.WithPublishAsyncMaxPending(pendingMax),
		jetstream.WithDefaultTimeout(30*time.Second))
	check(err)
	switch work {
	case "pipelined":
		load(pipelined(js), subject, body, lasts)
	case "fast":
		load(fast(ctx, js, subject), subject, body, lasts)
	case "single":
		single(ctx, js, subject, body, lasts)
	case "read":
		read(ctx, js, subject, lasts, wanted)
	default:
		check(fmt.Errorf("no work %q", strings.TrimSpace(work)))
	}
}
