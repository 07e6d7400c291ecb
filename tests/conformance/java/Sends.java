import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.MessageQueueSelector;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** The ways to send; each reads back what it sent. */
final class Sends {
    static final int COUNT = 10;
    static final MessageQueueSelector BY_KEY =
        (queues, message, key) -> queues.get(Math.floorMod(key.hashCode(), queues.size()));

    private Sends() {
    }

    static void register(Map<String, Driver.Steps> known) {
        known.put("send_sync", s -> {
            DefaultMQProducer producer = s.producer();
            for (int i = 0; i < COUNT; i++) {
                Message message = s.message("sync " + i);
                s.sent(message, producer.send(message));
            }
            readBack(s, COUNT);
        });
        known.put("send_async", Sends::async);
        known.put("send_oneway", s -> {
            DefaultMQProducer producer = s.producer();
            for (int i = 0; i < COUNT; i++) {
                producer.sendOneway(s.message("oneway " + i));
            }
            readBack(s, COUNT);
        });
        known.put("send_batch", Sends::batch);
        known.put("send_selector", Sends::selector);
        known.put("send_compressed", s -> {
            DefaultMQProducer producer = s.producer();
            for (int size : new int[] {4 << 10, 20 << 10, 1 << 20}) {
                Message message = s.message("compressible ".repeat(size / 13));
                s.sent(message, producer.send(message));
            }
            readBack(s, 3);
        });
        known.put("send_again", SendsAgain::run);
        known.put("auto_topic", s -> {
            DefaultMQProducer producer = s.producer();
            Message message = s.message("makes its topic");
            s.sent(message, producer.send(message));
            // The name servers know the topic a moment later. A consumer that came in between would
            // ask them again after 30 s.
            Scenario.await(() -> !producer.fetchPublishMessageQueues(s.topic).isEmpty());
            readBack(s, 1);
        });
    }

    private static void async(Scenario s) throws Exception {
        DefaultMQProducer producer = s.producer();
        CountDownLatch answered = new CountDownLatch(COUNT);
        for (int i = 0; i < COUNT; i++) {
            Message message = s.message("async " + i);
            producer.send(message, new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    s.sent(message, result);
                    answered.countDown();
                }

                @Override
                public void onException(Throwable error) {
                    s.say("error", "error", error.toString());
                    answered.countDown();
                }
            });
        }
        answered.await(10, TimeUnit.SECONDS);
        readBack(s, COUNT);
    }

    private static void batch(Scenario s) throws Exception {
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < COUNT; i++) {
            batch.add(s.message("batch " + i));
        }
        SendResult result = s.producer().send(batch);
        s.say("batch", "ids", result.getMsgId(), "queue", result.getMessageQueue().getQueueId(),
            "offset", result.getQueueOffset(), "status", result.getSendStatus().name());
        readBack(s, COUNT);
    }

    private static void selector(Scenario s) throws Exception {
        DefaultMQProducer producer = s.producer();
        for (int i = 0; i < COUNT; i++) {
            for (String key : new String[] {"a", "b", "c"}) {
                Message message = s.message(key + " " + i);
                s.sent(message, producer.send(message, BY_KEY, key));
            }
        }
        readBack(s, 3 * COUNT);
    }

    /** A push consumer prints all that the topic holds. */
    static void readBack(Scenario s, int count) throws Exception {
        PushConsumers.concurrent(s, "reader", "*").start();
        s.awaitReceived(count);
    }

    static void print(Scenario s, String consumer, List<MessageExt> messages) {
        messages.forEach(message -> s.received(message, consumer));
    }
}
