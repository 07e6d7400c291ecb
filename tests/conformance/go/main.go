// Tries features of the stock Go client against a cluster, several at a time, and prints as JSON
// lines what happened. It judges nothing.
//
// Arguments: name servers, the client's name, how many at a time, features.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const (
	count = 10
	join  = 3 * time.Second
)

var features = map[string]func(*scenario){
	"send_sync": func(s *scenario) { s.send(s.producer(), count, "sync"); s.readBack(count) },
	"send_async": func(s *scenario) {
		sending, answered := s.producer(), sync.WaitGroup{}
		for i := 0; i < count; i++ {
			message := s.message(fmt.Sprintf("async %d", i))
			answered.Add(1)
			must(sending.SendAsync(context.Background(),
				func(_ context.Context, result *primitive.SendResult, err error) {
					s.sent(message, result, err)
					answered.Done()
				}, message))
		}
		answered.Wait()
		s.readBack(count)
	},
	"send_oneway": func(s *scenario) {
		sending := s.producer()
		for i := 0; i < count; i++ {
			must(sending.SendOneWay(context.Background(), s.message(fmt.Sprintf("oneway %d", i))))
		}
		s.readBack(count)
	},
	"send_batch": func(s *scenario) {
		batch := []*primitive.Message{}
		for i := 0; i < count; i++ {
			batch = append(batch, s.message(fmt.Sprintf("batch %d", i)))
		}
		result, err := s.producer().SendSync(context.Background(), batch...)
		must(err)
		s.say("batch", "ids", result.MsgID, "queue", result.MessageQueue.QueueId,
			"offset", result.QueueOffset, "status", status(result))
		s.readBack(count)
	},
	"send_selector": func(s *scenario) {
		sending := s.producer(producer.WithQueueSelector(producer.NewHashQueueSelector()))
		for i := 0; i < count; i++ {
			for _, key := range []string{"a", "b", "c"} {
				message := s.message(fmt.Sprintf("%s %d", key, i)).WithShardingKey(key)
				s.sendOne(sending, message)
			}
		}
		s.readBack(3 * count)
	},
	"send_compressed": func(s *scenario) {
		sending := s.producer()
		for _, size := range []int{4 << 10, 20 << 10, 1 << 20} {
			s.sendOne(sending, s.message(strings.Repeat("compressible ", size/13)))
		}
		s.readBack(3)
	},
	"auto_topic": func(s *scenario) { s.send(s.producer(), 1, "makes its topic"); s.readBack(1) },
	"send_again": sendAgain,
	"push_clustering": func(s *scenario) {
		s.push("one", "*")
		s.push("two", "*")
		time.Sleep(join)
		s.send(s.producer(), 4*count, "message")
		s.await(4 * count)
	},
	"push_broadcast": func(s *scenario) {
		s.push("one", "*", consumer.WithConsumerModel(consumer.BroadCasting))
		s.push("two", "*", consumer.WithConsumerModel(consumer.BroadCasting))
		time.Sleep(join)
		s.send(s.producer(), count, "message")
		s.await(2 * count)
	},
	// Alone: this client never unlocks a queue that it gives up, so another waits for 60 s.
	"push_orderly_alone": func(s *scenario) {
		s.push("one", "*", consumer.WithConsumerOrder(true))
		sending := s.producer(producer.WithQueueSelector(producer.NewHashQueueSelector()))
		for i := 0; i < 4*count; i++ {
			message := s.message(strconv.Itoa(i)).WithShardingKey(strconv.Itoa(i % 8))
			s.sendOne(sending, message)
		}
		s.await(4 * count)
	},
	"tag_filter": func(s *scenario) {
		sending := s.producer()
		// "Aa" and "BB" have the same Java hash: the broker can't tell them apart, the client must.
		for i := 0; i < 3; i++ {
			for _, tag := range []string{"TagA", "TagB", "TagC", "Aa", "BB"} {
				s.sendOne(sending, s.message(tag).WithTag(tag))
			}
			s.sendOne(sending, s.message("untagged"))
		}
		s.push("reader", "TagA || TagC || Aa")
		s.await(9)
		time.Sleep(time.Second / 2)
	},
	"sql_filter": func(s *scenario) {
		orders(s)
		s.listenTo(consumer.MessageSelector{Type: consumer.SQL92, Expression: wanted}, "reader",
			func(*primitive.MessageExt) bool { return true })
		s.await(4)
		orders(s)
		s.await(8)
		time.Sleep(time.Second / 2)
	},
	"from_first": func(s *scenario) { s.from(consumer.ConsumeFromFirstOffset) },
	"from_last":  func(s *scenario) { s.from(consumer.ConsumeFromLastOffset) },
	"resume": func(s *scenario) {
		s.send(s.producer(), count, "before")
		first := s.push("first", "*")
		s.await(count)
		// Shutdown waits for no handler: it may say how far it is before the last one has returned.
		time.Sleep(time.Second)
		must(first.Shutdown())
		s.push("second", "*")
		s.send(s.producer(), count, "after")
		s.await(2 * count)
		time.Sleep(time.Second)
	},
	// Somebody resets the group's offsets when all were received; see test_resets.py.
	"reset_running": func(s *scenario) {
		s.push("reader", "*")
		s.send(s.producer(), count, "message")
		s.await(2 * count)
		s.await(2 * count)
		time.Sleep(time.Second)
	},
	"delay": func(s *scenario) {
		s.push("reader", "*")
		sending := s.producer()
		for level := 0; level <= 2; level++ {
			message := s.message(fmt.Sprintf("level %d", level))
			if level > 0 {
				message.WithDelayTimeLevel(level)
			}
			s.sendOne(sending, message)
		}
		s.await(3)
	},
	"retry": func(s *scenario) {
		s.listen("reader", "*", func(message *primitive.MessageExt) bool {
			return message.ReconsumeTimes >= 1
		})
		s.send(s.producer(), 3, "message")
		s.await(6)
	},
	"dead_letter": func(s *scenario) {
		refuse := func(*primitive.MessageExt) bool { return false }
		s.listen("reader", "*", refuse, consumer.WithMaxReconsumeTimes(1))
		s.send(s.producer(), 1, "message")
		s.await(2)
		time.Sleep(time.Second)
		dead := &scenario{namesrv: s.namesrv, feature: s.feature, topic: "%DLQ%" + s.group,
			group: s.group + "_dead"}
		defer dead.close()
		dead.push("dead", "*")
		dead.await(1)
	},
	"namespace": func(s *scenario) {
		s.send(s.producer(producer.WithNamespace("space")), 3, "spaced")
		s.push("reader", "*", consumer.WithNamespace("space"))
		s.await(3)
		outside := &scenario{namesrv: s.namesrv, feature: "outside of " + s.feature,
			topic: "space%" + s.topic, group: s.group + "_outside"}
		defer outside.close()
		outside.push("outside", "*")
		outside.await(3)
		s.say("outside", "stored", outside.receivedSoFar())
	},
	"request_reply": func(s *scenario) {
		replier := s.producer()
		s.listen("replier", "*", func(message *primitive.MessageExt) bool {
			if message.GetProperty("REPLY_TO_CLIENT") == "" {
				return true
			}
			reply := s.message("reply to " + string(message.Body))
			reply.Topic = message.GetProperty("CLUSTER") + "_REPLY_TOPIC"
			reply.WithProperty("MSG_TYPE", "reply")
			for _, name := range []string{"CORRELATION_ID", "REPLY_TO_CLIENT", "TTL"} {
				reply.WithProperty(name, message.GetProperty(name))
			}
			_, err := replier.SendSync(context.Background(), reply)
			must(err)
			return true
		})
		// Brokers know who asks by its heartbeat. This client sends the first one a second after its
		// start, and to the brokers of topics that it has sent to by then.
		asker := s.producer()
		_, err := asker.SendSync(context.Background(), s.message("no question"))
		must(err)
		time.Sleep(2 * time.Second)
		reply, err := asker.Request(context.Background(), 10*time.Second, s.message("a question"))
		must(err)
		s.say("reply", "body", string(reply.Body))
	},
}

const wanted = "amount BETWEEN 20 AND 40 AND (region IN ('north', 'it''s south') OR TAGS = 'TagA')"

// Ten messages, of which four are wanted: 20, 30 and 40 of the regions, and TagA at 25.
func orders(s *scenario) {
	sending := s.producer()
	regions := []string{"north", "it's south", "east"}
	for amount := 10; amount <= 50; amount += 5 {
		message, region := s.message(fmt.Sprintf("order of %d", amount)).WithTag("TagB"), 2
		if amount%10 == 0 {
			region = amount / 10 % 2
		}
		if amount == 25 {
			message.WithTag("TagA")
		}
		message.WithProperty("amount", strconv.Itoa(amount))
		message.WithProperty("region", regions[region])
		s.sendOne(sending, message)
	}
	s.sendOne(sending, s.message("order without an amount"))
}

func main() {
	rlog.SetLogLevel("error")
	slots, _ := strconv.Atoi(os.Args[3])
	free, running := make(chan bool, slots), sync.WaitGroup{}
	for _, feature := range os.Args[4:] {
		running.Add(1)
		free <- true
		go func(feature string) {
			run(feature)
			<-free
			running.Done()
		}(feature)
	}
	running.Wait()
}

func run(feature string) {
	name := os.Args[2] + "_" + feature
	s := &scenario{namesrv: os.Args[1], feature: feature, topic: name, group: name}
	defer s.close()
	defer func() {
		if problem := recover(); problem != nil {
			s.say("error", "error", fmt.Sprint(problem))
		}
	}()
	features[feature](s)
	s.say("done")
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func (s *scenario) from(where consumer.ConsumeFromWhere) {
	s.send(s.producer(), count, "before")
	s.push("reader", "*", consumer.WithConsumeFromWhere(where))
	time.Sleep(join)
	s.send(s.producer(), count, "after")
	s.await(2 * count)
}

