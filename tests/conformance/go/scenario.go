package main

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const wait = 20 * time.Second

// Whom requests are signed as; without them nothing is signed.
var credentials = primitive.Credentials{
	AccessKey: os.Getenv("SIGN_AS"), SecretKey: os.Getenv("PASSWORD"),
}

// One feature, tried with stock types: its own topic and group, its clients, its JSON lines.
type scenario struct {
	namesrv, feature, topic, group string

	lock     sync.Mutex
	received int
	made     int
	closing  []func() error
}

func (s *scenario) names() primitive.NamesrvAddr {
	return strings.Split(s.namesrv, ";")
}

// A started producer, closed with the scenario.
func (s *scenario) producer(options ...producer.Option) rocketmq.Producer {
	s.made++
	name := fmt.Sprintf("%s_producer%d", s.group, s.made)
	options = append([]producer.Option{
		producer.WithNameServer(s.names()),
		producer.WithGroupName(name),
		producer.WithInstanceName(name),
		producer.WithRetry(2),
		producer.WithCredentials(credentials),
	}, options...)
	made, err := rocketmq.NewProducer(options...)
	must(err)
	must(made.Start())
	s.closing = append(s.closing, made.Shutdown)
	return made
}

// A started push consumer that accepts everything.
func (s *scenario) push(name, tags string, options ...consumer.Option) rocketmq.PushConsumer {
	return s.listen(name, tags, func(*primitive.MessageExt) bool { return true }, options...)
}

// A started push consumer; what `accept` refuses is asked for again after delay level 1.
func (s *scenario) listen(
	name, tags string, accept func(*primitive.MessageExt) bool, options ...consumer.Option,
) rocketmq.PushConsumer {
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: tags}
	return s.listenTo(selector, name, accept, options...)
}

func (s *scenario) listenTo(
	selector consumer.MessageSelector, name string, accept func(*primitive.MessageExt) bool,
	options ...consumer.Option,
) rocketmq.PushConsumer {
	options = append([]consumer.Option{
		consumer.WithNameServer(s.names()),
		consumer.WithGroupName(s.group),
		consumer.WithInstance(s.group + "_" + name),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithCredentials(credentials),
	}, options...)
	made, err := rocketmq.NewPushConsumer(options...)
	must(err)
	must(made.Subscribe(s.topic, selector,
		func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			result := consumer.ConsumeSuccess
			for _, message := range messages {
				s.got(message, name)
				if !accept(message) {
					if concurrent, found := primitive.GetConcurrentlyCtx(ctx); found {
						concurrent.DelayLevelWhenNextConsume = 1
					}
					result = consumer.ConsumeRetryLater
				}
			}
			return result, nil
		}))
	must(made.Start())
	s.closing = append(s.closing, made.Shutdown)
	return made
}

func (s *scenario) readBack(count int) {
	s.push("reader", "*")
	s.await(count)
}

func (s *scenario) message(text string) *primitive.Message {
	return primitive.NewMessage(s.topic, []byte(text))
}

func (s *scenario) send(sending rocketmq.Producer, count int, word string) {
	for i := 0; i < count; i++ {
		s.sendOne(sending, s.message(fmt.Sprintf("%s %d", word, i)))
	}
}

func (s *scenario) sendOne(sending rocketmq.Producer, message *primitive.Message) {
	// The client compresses the body in place.
	original := s.message(string(message.Body))
	result, err := sending.SendSync(context.Background(), message)
	s.sent(original, result, err)
}

func (s *scenario) sent(message *primitive.Message, result *primitive.SendResult, err error) {
	if err != nil {
		s.say("error", "error", err.Error())
		return
	}
	s.say("sent", "id", result.MsgID, "offset_id", result.OffsetMsgID, "status", status(result),
		"broker", result.MessageQueue.BrokerName, "queue", result.MessageQueue.QueueId,
		"offset", result.QueueOffset, "body", text(message.Body), "size", len(message.Body),
		"crc", crc32.ChecksumIEEE(message.Body))
}

func (s *scenario) got(message *primitive.MessageExt, name string) {
	s.say("received", "id", message.MsgId, "topic", message.Topic,
		"broker", message.Queue.BrokerName, "queue", message.Queue.QueueId,
		"offset", message.QueueOffset, "body", text(message.Body), "size", len(message.Body),
		"crc", crc32.ChecksumIEEE(message.Body), "tags", message.GetTags(),
		"reconsumed", message.ReconsumeTimes, "consumer", name)
	s.lock.Lock()
	s.received++
	s.lock.Unlock()
}

func (s *scenario) receivedSoFar() int {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.received
}

// Wait until so many were received, or the deadline; the judge sees which it was.
func (s *scenario) await(count int) {
	for deadline := time.Now().Add(wait); time.Now().Before(deadline); {
		if s.receivedSoFar() >= count {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

var printing sync.Mutex

// One JSON line: the feature, what happened, when, and pairs of name and value.
func (s *scenario) say(what string, pairs ...interface{}) {
	event := map[string]interface{}{
		"feature": s.feature, "what": what, "t": time.Now().UnixNano() / 1e6,
	}
	for i := 0; i < len(pairs); i += 2 {
		event[pairs[i].(string)] = pairs[i+1]
	}
	line, err := json.Marshal(event)
	must(err)
	printing.Lock()
	defer printing.Unlock()
	fmt.Println(string(line))
}

func (s *scenario) close() {
	for i := len(s.closing) - 1; i >= 0; i-- {
		_ = s.closing[i]()
	}
}

func status(result *primitive.SendResult) string {
	if result.Status == primitive.SendOK {
		return "SEND_OK"
	}
	return fmt.Sprint(result.Status)
}

func text(body []byte) string {
	if len(body) > 200 {
		return ""
	}
	return string(body)
}
