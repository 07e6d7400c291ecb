package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// One message object sent several times, in each way to send. The client makes its key once.
func sendAgain(s *scenario) {
	ctx, sending := context.Background(), s.producer()
	var sentOn int32
	s.listen("reader", "*", func(message *primitive.MessageExt) bool {
		if string(message.Body) == "consumed" && atomic.CompareAndSwapInt32(&sentOn, 0, 1) {
			again := message.Message
			s.sendOne(sending, &again)
			again.WithDelayTimeLevel(1)
			_, err := sending.SendSync(ctx, &again)
			must(err)
		}
		return true
	})

	twice := s.message("twice")
	s.sendOne(sending, twice)
	s.sendOne(sending, twice)

	queues := s.message("two queues")
	choosing := s.producer(producer.WithQueueSelector(producer.NewManualQueueSelector()))
	result, err := sending.SendSync(ctx, queues)
	s.sent(queues, result, err)
	other := *result.MessageQueue
	other.QueueId = 1 - other.QueueId
	queues.Queue = &other
	s.sendOne(choosing, queues)

	oneway := s.message("one-way")
	for i := 0; i < 3; i++ {
		must(sending.SendOneWay(ctx, oneway))
	}

	bodies := s.message("one body")
	s.sendOne(sending, bodies)
	bodies.Body = []byte("another body")
	s.sendOne(sending, bodies)

	batch := []*primitive.Message{s.message("batched 0"), s.message("batched 1")}
	delayed := s.message("delayed").WithDelayTimeLevel(1)
	for i := 0; i < 2; i++ {
		_, err := sending.SendSync(ctx, batch...)
		must(err)
		_, err = sending.SendSync(ctx, delayed)
		must(err)
	}

	// Sent again while no send of it is answered, over one connection.
	atOnce, answered := s.message("at once"), sync.WaitGroup{}
	for i := 0; i < 3; i++ {
		answered.Add(1)
		must(sending.SendAsync(ctx,
			func(_ context.Context, result *primitive.SendResult, err error) {
				s.sent(atOnce, result, err)
				answered.Done()
			}, atOnce))
	}
	answered.Wait()

	s.sendOne(sending, s.message("consumed"))
	s.await(21)
	time.Sleep(time.Second)
}
