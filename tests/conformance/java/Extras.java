import java.nio.charset.StandardCharsets;
import java.util.Collection;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Queries, traces, namespaces, the VIP channel, requests with replies. */
final class Extras {
    private static final String TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC";
    private static final long HOUR_MS = 3_600_000;

    private Extras() {
    }

    static void register(Map<String, Driver.Steps> known) {
        known.put("query_by_id", s -> {
            Message message = s.message("asked for by its place");
            DefaultMQProducer producer = s.producer();
            SendResult result = producer.send(message);
            s.sent(message, result);
            s.received(producer.viewMessage(s.topic, result.getOffsetMsgId()), "query");
        });
        known.put("query_by_unique_id", s -> {
            Message message = s.message("asked for by its id");
            DefaultMQProducer producer = s.producer();
            SendResult result = producer.send(message);
            s.sent(message, result);
            Scenario.await(() -> producer.viewMessage(s.topic, result.getMsgId()) != null);
            s.received(producer.viewMessage(s.topic, result.getMsgId()), "query");
        });
        known.put("query_by_key", Extras::byKey);
        known.put("trace", Extras::trace);
        known.put("namespace", Extras::namespace);
        known.put("vip_channel", s -> {
            DefaultMQProducer producer = new DefaultMQProducer(s.group + "_vip");
            producer.setVipChannelEnabled(true);
            Message message = s.message("through the other port");
            s.sent(message, s.started(producer).send(message));
            DefaultMQPushConsumer consumer = PushConsumers.concurrent(s, "reader", "*");
            consumer.setVipChannelEnabled(true);
            consumer.start();
            s.awaitReceived(1);
        });
        known.put("request_reply", Extras::request);
    }

    private static void byKey(Scenario s) throws Exception {
        DefaultMQProducer producer = s.producer();
        for (int i = 0; i < 4; i++) {
            Message message = s.message("key " + i % 2);
            message.setKeys("order-" + i % 2 + " both");
            s.sent(message, producer.send(message));
        }
        long now = System.currentTimeMillis();
        for (String key : new String[] {"order-1", "both"}) {
            QueryResult[] found = new QueryResult[1];
            Scenario.await(() -> {
                found[0] = producer.queryMessage(s.topic, key, 32, now - HOUR_MS, now + HOUR_MS);
                return true;
            });
            Sends.print(s, key, found[0].getMessageList());
        }
    }

    private static void trace(Scenario s) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(s.group + "_traced", null, true, null);
        Message message = s.message("traced");
        SendResult result = s.started(producer).send(message);
        s.sent(message, result);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
            s.group, null, new AllocateMessageQueueAveragely(), true, null);
        PushConsumers.concurrent(s, s.prepared(consumer, "reader"), "reader", "*").start();
        s.awaitReceived(1);
        DefaultLitePullConsumer reader = s.liteConsumer("traces", s.group + "_traces");
        reader.start();
        Scenario.await(() -> !reader.fetchMessageQueues(TRACE_TOPIC).isEmpty());
        Collection<MessageQueue> queues = reader.fetchMessageQueues(TRACE_TOPIC);
        reader.assign(queues);
        for (MessageQueue queue : queues) {
            reader.seekToBegin(queue);
        }
        TreeSet<String> kinds = new TreeSet<>();
        Scenario.await(() -> {
            for (MessageExt record : reader.poll(200)) {
                for (String line : new String(record.getBody(), StandardCharsets.UTF_8).split("\u0002")) {
                    if (line.contains(result.getMsgId())) {
                        kinds.add(line.split("\u0001")[0]);
                    }
                }
            }
            return kinds.size() >= 3;
        });
        s.say("traced", "kinds", String.join(" ", kinds));
    }

    @SuppressWarnings("deprecation")
    private static void namespace(Scenario s) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(s.group + "_spaced");
        producer.setNamespace("space");
        s.started(producer);
        for (int i = 0; i < 3; i++) {
            Message message = s.message("spaced " + i);
            s.sent(message, producer.send(message));
        }
        DefaultMQPushConsumer consumer = s.pushConsumer("reader");
        consumer.setNamespace("space");
        PushConsumers.concurrent(s, consumer, "reader", "*").start();
        s.awaitReceived(3);
        DefaultLitePullConsumer outside = s.liteConsumer("outside", s.group + "_outside");
        outside.start();
        long stored = 0;
        for (MessageQueue queue : outside.fetchMessageQueues("space%" + s.topic)) {
            outside.assign(java.util.List.of(queue));
            stored += outside.offsetForTimestamp(queue, System.currentTimeMillis() + HOUR_MS);
        }
        s.say("outside", "stored", stored);
    }

    private static void request(Scenario s) throws Exception {
        DefaultMQProducer replier = s.producer();
        DefaultMQPushConsumer consumer = s.pushConsumer("replier");
        consumer.subscribe(s.topic, "*");
        CountDownLatch answered = new CountDownLatch(1);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            Sends.print(s, "replier", messages);
            try {
                for (MessageExt message : messages) {
                    byte[] body = ("reply to " + new String(message.getBody(), StandardCharsets.UTF_8))
                        .getBytes(StandardCharsets.UTF_8);
                    replier.send(MessageUtil.createReplyMessage(message, body));
                }
                answered.countDown();
            } catch (Exception error) {
                s.say("error", "error", error.toString());
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Message reply = s.producer().request(s.message("a question"), 10_000);
        s.say("reply", "body", new String(reply.getBody(), StandardCharsets.UTF_8));
        // The replier is told a moment later; closing would interrupt it.
        answered.await(Scenario.WAIT_MS, TimeUnit.MILLISECONDS);
    }
}
