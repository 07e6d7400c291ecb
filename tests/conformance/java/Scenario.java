import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.zip.CRC32;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** One feature, tried with stock classes: its own topic and group, its clients, its JSON lines. */
final class Scenario implements AutoCloseable {
    static final int WAIT_MS = 20_000;

    final String namesrv;
    final String client;
    final String feature;
    final String topic;
    final String group;
    private final AtomicInteger received = new AtomicInteger();
    private final Set<String> ids = ConcurrentHashMap.newKeySet();
    private final Deque<Runnable> closing = new ArrayDeque<>();
    private int producers;

    Scenario(String namesrv, String client, String feature) {
        this.namesrv = namesrv;
        this.client = client;
        this.feature = feature;
        this.topic = client + "_" + feature;
        this.group = client + "_" + feature;
    }

    /** A started producer, closed with the scenario. */
    DefaultMQProducer producer() throws Exception {
        return started(new DefaultMQProducer(group + "_producer" + producers++));
    }

    DefaultMQProducer started(DefaultMQProducer producer) throws Exception {
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName(producer.getProducerGroup());
        producer.start();
        closing.push(producer::shutdown);
        return producer;
    }

    /** A push consumer that reads from the first message; not started, its listener is missing. */
    DefaultMQPushConsumer pushConsumer(String name) {
        return prepared(new DefaultMQPushConsumer(group), name);
    }

    DefaultMQPushConsumer prepared(DefaultMQPushConsumer consumer, String name) {
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(group + "_" + name);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(2);
        consumer.setConsumeThreadMax(2);
        closing.push(consumer::shutdown);
        return consumer;
    }

    /** A lite pull consumer of the scenario's group, not started. */
    DefaultLitePullConsumer liteConsumer(String name) {
        return liteConsumer(name, group);
    }

    /** One that only looks needs a group of its own: a group's members subscribe alike. */
    DefaultLitePullConsumer liteConsumer(String name, String group) {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(group + "_" + name);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPullThreadNums(4);
        closing.push(consumer::shutdown);
        return consumer;
    }

    @SuppressWarnings("deprecation")
    DefaultMQPullConsumer pullConsumer() throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(group + "_pull");
        consumer.start();
        closing.push(consumer::shutdown);
        return consumer;
    }

    Message message(String text) {
        return new Message(topic, text.getBytes(StandardCharsets.UTF_8));
    }

    void sent(Message message, SendResult result) {
        say("sent", "id", result.getMsgId(), "offset_id", result.getOffsetMsgId(),
            "status", result.getSendStatus().name(),
            "broker", result.getMessageQueue().getBrokerName(),
            "queue", result.getMessageQueue().getQueueId(), "offset", result.getQueueOffset(),
            "body", text(message.getBody()), "size", message.getBody().length,
            "crc", crc(message.getBody()));
    }

    void received(MessageExt message, String consumer) {
        say("received", "id", message.getMsgId(), "topic", message.getTopic(),
            "broker", message.getBrokerName(), "queue", message.getQueueId(),
            "offset", message.getQueueOffset(), "body", text(message.getBody()),
            "size", message.getBody().length, "crc", crc(message.getBody()),
            "tags", message.getTags(), "keys", message.getKeys(),
            "reconsumed", message.getReconsumeTimes(), "consumer", consumer,
            "popped", message.getProperty("POP_CK") != null);
        ids.add(message.getMsgId());
        received.incrementAndGet();
    }

    /** How many messages were received, however often each. */
    int receivedIds() {
        return ids.size();
    }

    /** Wait until so many were received, or the deadline; the judge sees which it was. */
    void awaitReceived(int count) throws InterruptedException {
        await(() -> received.get() >= count);
    }

    static void await(Callable<Boolean> condition) throws InterruptedException {
        long deadline = System.currentTimeMillis() + WAIT_MS;
        while (System.currentTimeMillis() < deadline) {
            try {
                if (condition.call()) {
                    return;
                }
            } catch (InterruptedException interrupted) {
                throw interrupted;
            } catch (Exception notYet) {
                // Asked again until the deadline: a route may not be known yet.
            }
            Thread.sleep(20);
        }
    }

    /** One JSON line: the feature, what happened, when, and pairs of name and value. */
    void say(String what, Object... pairs) {
        StringBuilder line = new StringBuilder("{\"feature\":").append(quoted(feature));
        line.append(",\"what\":").append(quoted(what));
        line.append(",\"t\":").append(System.currentTimeMillis());
        for (int i = 0; i < pairs.length; i += 2) {
            line.append(',').append(quoted(pairs[i].toString())).append(':').append(json(pairs[i + 1]));
        }
        synchronized (System.out) {
            System.out.println(line.append('}'));
        }
    }

    private static String json(Object value) {
        boolean bare = value == null || value instanceof Number || value instanceof Boolean;
        return bare ? String.valueOf(value) : quoted(value.toString());
    }

    private static String quoted(String text) {
        StringBuilder out = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c < ' ' || c == '"' || c == '\\' || c > '~') {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        return out.append('"').toString();
    }

    private static String text(byte[] body) {
        return body.length > 200 ? "" : new String(body, StandardCharsets.UTF_8);
    }

    static long crc(byte[] body) {
        CRC32 crc = new CRC32();
        crc.update(body);
        return crc.getValue();
    }

    @Override
    public void close() {
        while (!closing.isEmpty()) {
            closing.pop().run();
        }
    }
}
