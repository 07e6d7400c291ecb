import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/** Push consumers that let the broker share the queues out: their groups' mode is POP. */
final class PopConsumers {
    private static final int JOIN_MS = 5_000;
    private static final int COUNT = 200;
    private static final int STEADY_MS = 15_000;
    private static final int DRAIN_MS = 75_000; // What a dead leader's ack did not reach comes again.

    private PopConsumers() {
    }

    static void register(Map<String, Driver.Steps> known) {
        known.put("pop", s -> {
            consumer(s, "one", 0).start();
            consumer(s, "two", 0).start();
            Thread.sleep(JOIN_MS);
            PushConsumers.send(s, COUNT);
            s.awaitReceived(COUNT);
            Thread.sleep(500);
        });
        known.put("pop_retry", s -> {
            consumer(s, "reader", 1).start();
            PushConsumers.send(s, 3);
            s.awaitReceived(6);
        });
        known.put("pop_failover", PopConsumers::failover);
    }

    /** Refuses each message so many times; it comes again after 10 s. */
    private static DefaultMQPushConsumer consumer(Scenario s, String name, int refusals)
        throws Exception {
        DefaultMQPushConsumer consumer = s.pushConsumer(name);
        // New in 5.0, hence by name.
        DefaultMQPushConsumer.class.getMethod("setClientRebalance", boolean.class)
            .invoke(consumer, false);
        consumer.setPollNameServerInterval(1_000);
        consumer.subscribe(s.topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            Sends.print(s, name, messages);
            return messages.get(0).getReconsumeTimes() < refusals
                ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        return consumer;
    }

    /** Sends until somebody has had time to kill a leader; waits until all was received. */
    private static void failover(Scenario s) throws Exception {
        AtomicInteger sent = new AtomicInteger();
        consumer(s, "one", 0).start();
        consumer(s, "two", 0).start();
        Thread.sleep(JOIN_MS);
        DefaultMQProducer producer = new DefaultMQProducer(s.group + "_steady");
        producer.setPollNameServerInterval(1_000);
        s.started(producer);
        long end = System.currentTimeMillis() + STEADY_MS;
        while (System.currentTimeMillis() < end) {
            Message message = s.message("message " + sent.get());
            s.sent(message, producer.send(message));
            sent.incrementAndGet();
            Thread.sleep(10);
        }
        long drained = System.currentTimeMillis() + DRAIN_MS;
        while (s.receivedIds() < sent.get() && System.currentTimeMillis() < drained) {
            Thread.sleep(100);
        }
    }
}
