import java.time.LocalDateTime;
import java.time.format.DateTimeFormatter;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/** Push consumers: alone and several in a group, in order and not, from everywhere, by tag. */
final class PushConsumers {
    private static final int JOIN_MS = 3_000;
    private static final int COUNT = 40;

    private PushConsumers() {
    }

    static void register(Map<String, Driver.Steps> known) {
        known.put("push_clustering", s -> {
            concurrent(s, "one", "*").start();
            concurrent(s, "two", "*").start();
            Thread.sleep(JOIN_MS);
            send(s, COUNT);
            s.awaitReceived(COUNT);
        });
        known.put("push_broadcast", s -> {
            for (String name : new String[] {"one", "two"}) {
                DefaultMQPushConsumer consumer = concurrent(s, name, "*");
                setModel(consumer, "BROADCASTING");
                consumer.start();
            }
            Thread.sleep(JOIN_MS);
            send(s, Sends.COUNT);
            s.awaitReceived(2 * Sends.COUNT);
        });
        known.put("push_orderly", s -> {
            orderly(s, "one").start();
            orderly(s, "two").start();
            Thread.sleep(JOIN_MS);
            DefaultMQProducer producer = s.producer();
            for (int i = 0; i < COUNT; i++) {
                Message message = s.message(String.valueOf(i));
                s.sent(message, producer.send(message, Sends.BY_KEY, i % 8));
            }
            s.awaitReceived(COUNT);
        });
        known.put("tag_filter", PushConsumers::tags);
        known.put("sql_filter", s -> {
            orders(s);
            DefaultMQPushConsumer consumer = concurrent(s, "reader", "*");
            consumer.subscribe(s.topic, MessageSelector.bySql(WANTED));
            consumer.start();
            s.awaitReceived(4);
            orders(s);
            s.awaitReceived(8);
            Thread.sleep(500);
        });
        known.put("from_first", s -> from(s, ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET));
        known.put("from_last", s -> from(s, ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET));
        known.put("from_timestamp", s -> from(s, ConsumeFromWhere.CONSUME_FROM_TIMESTAMP));
        known.put("resume", s -> {
            send(s, Sends.COUNT);
            DefaultMQPushConsumer first = concurrent(s, "first", "*");
            // Else it may say how far it is before its last listener has returned.
            first.setAwaitTerminationMillisWhenShutdown(10_000);
            first.start();
            s.awaitReceived(Sends.COUNT);
            first.shutdown();
            s.say("restarted");
            concurrent(s, "second", "*").start();
            send(s, Sends.COUNT);
            s.awaitReceived(2 * Sends.COUNT);
            Thread.sleep(1_000); // What came twice would come now.
        });
        // Somebody resets the group's offsets when all were received; see test_resets.py.
        known.put("reset_running", s -> {
            concurrent(s, "reader", "*").start();
            send(s, Sends.COUNT);
            s.awaitReceived(2 * Sends.COUNT);
            s.awaitReceived(2 * Sends.COUNT);
            Thread.sleep(1_000);
        });
    }

    /** Prints and accepts each message, several at a time. */
    static DefaultMQPushConsumer concurrent(Scenario s, String name, String tags) throws Exception {
        return concurrent(s, s.pushConsumer(name), name, tags);
    }

    static DefaultMQPushConsumer concurrent(
        Scenario s, DefaultMQPushConsumer consumer, String name, String tags) throws Exception {
        consumer.subscribe(s.topic, tags);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            Sends.print(s, name, messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        return consumer;
    }

    private static DefaultMQPushConsumer orderly(Scenario s, String name) throws Exception {
        DefaultMQPushConsumer consumer = s.pushConsumer(name);
        consumer.subscribe(s.topic, "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            Sends.print(s, name, messages);
            return ConsumeOrderlyStatus.SUCCESS;
        });
        return consumer;
    }

    /** MessageModel lies in different packages in 4.9 and 5.x. */
    private static void setModel(DefaultMQPushConsumer consumer, String model) throws Exception {
        Class<?> type = DefaultMQPushConsumer.class.getMethod("getMessageModel").getReturnType();
        for (Object constant : type.getEnumConstants()) {
            if (constant.toString().equals(model)) {
                DefaultMQPushConsumer.class.getMethod("setMessageModel", type).invoke(consumer, constant);
            }
        }
    }

    private static void tags(Scenario s) throws Exception {
        DefaultMQProducer producer = s.producer();
        // "Aa" and "BB" have the same Java hash: the broker can't tell them apart, the client must.
        String[] tags = {"TagA", "TagB", "TagC", "Aa", "BB", null};
        for (int i = 0; i < 3 * tags.length; i++) {
            Message message = s.message(String.valueOf(tags[i % tags.length]));
            message.setTags(tags[i % tags.length]);
            s.sent(message, producer.send(message));
        }
        concurrent(s, "reader", "TagA || TagC || Aa").start();
        s.awaitReceived(9);
        Thread.sleep(500);
    }

    static final String WANTED =
        "amount BETWEEN 20 AND 40 AND (region IN ('north', 'it''s south') OR TAGS = 'TagA')";

    /** Ten messages, of which WANTED wants four: 20, 30 and 40 of the regions, and TagA at 25. */
    static void orders(Scenario s) throws Exception {
        DefaultMQProducer producer = s.producer();
        String[] regions = {"north", "it's south", "east"};
        for (int amount = 10; amount <= 50; amount += 5) {
            Message message = s.message("order of " + amount);
            message.setTags(amount == 25 ? "TagA" : "TagB");
            message.putUserProperty("amount", String.valueOf(amount));
            message.putUserProperty("region", regions[amount % 10 == 0 ? amount / 10 % 2 : 2]);
            s.sent(message, producer.send(message));
        }
        Message message = s.message("order without an amount");
        s.sent(message, producer.send(message));
    }

    private static void from(Scenario s, ConsumeFromWhere where) throws Exception {
        send(s, Sends.COUNT);
        DefaultMQPushConsumer consumer = concurrent(s, "reader", "*");
        consumer.setConsumeFromWhere(where);
        consumer.setConsumeTimestamp(
            LocalDateTime.now().minusHours(1).format(DateTimeFormatter.ofPattern("yyyyMMddHHmmss")));
        consumer.start();
        Thread.sleep(JOIN_MS);
        send(s, Sends.COUNT);
        s.awaitReceived(2 * Sends.COUNT);
    }

    static void send(Scenario s, int count) throws Exception {
        DefaultMQProducer producer = s.producer();
        for (int i = 0; i < count; i++) {
            Message message = s.message("message " + i);
            s.sent(message, producer.send(message));
        }
    }
}
