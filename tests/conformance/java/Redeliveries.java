import java.util.Collection;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageQueue;

/** Messages that come later or again: delays, retries, dead letters. */
final class Redeliveries {
    private static final int DELAY_LEVEL_1_S = 1;

    private Redeliveries() {
    }

    static void register(Map<String, Driver.Steps> known) {
        known.put("delay", s -> {
            PushConsumers.concurrent(s, "reader", "*").start();
            DefaultMQProducer producer = s.producer();
            for (int level : new int[] {0, 1, 2}) {
                Message message = s.message("level " + level);
                message.setDelayTimeLevel(level);
                s.sent(message, producer.send(message));
            }
            s.awaitReceived(3);
        });
        known.put("recall", Redeliveries::recall);
        known.put("retry", s -> {
            failing(s, 1).start();
            PushConsumers.send(s, 3);
            s.awaitReceived(6);
        });
        known.put("retry_orderly", s -> {
            DefaultMQPushConsumer consumer = s.pushConsumer("reader");
            consumer.subscribe(s.topic, "*");
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                Sends.print(s, "reader", messages);
                return messages.get(0).getReconsumeTimes() == 0
                    ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
                    : ConsumeOrderlyStatus.SUCCESS;
            });
            consumer.start();
            PushConsumers.send(s, 3);
            s.awaitReceived(6);
        });
        known.put("dead_letter", Redeliveries::deadLetter);
    }

    /** One message is taken back before its time, another one is not. New in 5.x, hence by name. */
    private static void recall(Scenario s) throws Exception {
        PushConsumers.concurrent(s, "reader", "*").start();
        DefaultMQProducer producer = s.producer();
        for (String text : new String[] {"taken back", "kept"}) {
            Message message = s.message(text);
            MessageAccessor.putProperty(message, "TIMER_DELAY_SEC", "3");
            SendResult sent = producer.send(message);
            if (text.equals("taken back")) {
                Object handle = SendResult.class.getMethod("getRecallHandle").invoke(sent);
                Object id = DefaultMQProducer.class
                    .getMethod("recallMessage", String.class, String.class)
                    .invoke(producer, s.topic, handle);
                s.say("recalled", "id", id, "sent", sent.getMsgId());
            }
        }
        s.awaitReceived(1);
        Thread.sleep(1_000);
    }

    /** Refuses each message so many times, asking for delay level 1 (1 s). */
    private static DefaultMQPushConsumer failing(Scenario s, int times) throws Exception {
        DefaultMQPushConsumer consumer = s.pushConsumer("reader");
        consumer.subscribe(s.topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            Sends.print(s, "reader", messages);
            context.setDelayLevelWhenNextConsume(DELAY_LEVEL_1_S);
            return messages.get(0).getReconsumeTimes() < times
                ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        return consumer;
    }

    private static void deadLetter(Scenario s) throws Exception {
        DefaultMQPushConsumer consumer = failing(s, Integer.MAX_VALUE);
        consumer.setMaxReconsumeTimes(1);
        consumer.start();
        PushConsumers.send(s, 1);
        s.awaitReceived(2);
        DefaultLitePullConsumer reader = s.liteConsumer("dead", s.group + "_dead");
        reader.start();
        Scenario.await(() -> !reader.fetchMessageQueues("%DLQ%" + s.group).isEmpty());
        Collection<MessageQueue> queues = reader.fetchMessageQueues("%DLQ%" + s.group);
        reader.assign(queues);
        for (MessageQueue queue : queues) {
            reader.seekToBegin(queue);
        }
        PullConsumers.poll(s, reader, "dead", 1);
    }
}
