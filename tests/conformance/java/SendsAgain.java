import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** One message object sent several times, in each way to send. The client makes its key once. */
final class SendsAgain {
    private static final int RECEIVED = 21;
    private static final int AT_ONCE = 3;

    private SendsAgain() {
    }

    static void run(Scenario s) throws Exception {
        DefaultMQProducer producer = s.producer();
        consume(s, producer);
        Message twice = s.message("twice");
        s.sent(twice, producer.send(twice));
        s.sent(twice, producer.send(twice));
        Message queues = s.message("two queues");
        for (MessageQueue queue : producer.fetchPublishMessageQueues(s.topic).subList(0, 2)) {
            s.sent(queues, producer.send(queues, queue));
        }
        Message oneway = s.message("one-way");
        for (int i = 0; i < 3; i++) {
            producer.sendOneway(oneway);
        }
        Message bodies = s.message("one body");
        s.sent(bodies, producer.send(bodies));
        bodies.setBody("another body".getBytes(StandardCharsets.UTF_8));
        s.sent(bodies, producer.send(bodies));
        List<Message> batch = List.of(s.message("batched 0"), s.message("batched 1"));
        producer.send(batch);
        producer.send(batch);
        Message delayed = s.message("delayed");
        delayed.setDelayTimeLevel(1);
        producer.send(delayed);
        producer.send(delayed);
        atOnce(s, producer);
        Message consumed = s.message("consumed");
        s.sent(consumed, producer.send(consumed));
        s.awaitReceived(RECEIVED);
        Thread.sleep(1_000);
    }

    /** Sent again while no send of it is answered, over one connection. */
    private static void atOnce(Scenario s, DefaultMQProducer producer) throws Exception {
        Message message = s.message("at once");
        CountDownLatch answered = new CountDownLatch(AT_ONCE);
        for (int i = 0; i < AT_ONCE; i++) {
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
    }

    /** Prints what comes; sends one message on as it came, to its own topic, and with a delay. */
    private static void consume(Scenario s, DefaultMQProducer producer) throws Exception {
        AtomicBoolean sentOn = new AtomicBoolean();
        DefaultMQPushConsumer consumer = s.pushConsumer("reader");
        consumer.subscribe(s.topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            Sends.print(s, "reader", messages);
            for (MessageExt message : messages) {
                String body = new String(message.getBody(), StandardCharsets.UTF_8);
                if (body.equals("consumed") && sentOn.compareAndSet(false, true)) {
                    try {
                        s.sent(message, producer.send(message));
                        message.setDelayTimeLevel(1);
                        producer.send(message);
                    } catch (Exception error) {
                        s.say("error", "error", error.toString());
                    }
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
    }
}
