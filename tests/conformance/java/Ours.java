import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** A stock client that meets ours: each asks, answers, delays and commits what the other reads. */
final class Ours {
    private static final int FROM_OURS = 3;

    private Ours() {
    }

    static void register(Map<String, Driver.Steps> known) {
        known.put("with_ours", Ours::meet);
    }

    private static void meet(Scenario s) throws Exception {
        String theirs = s.topic + "_back";
        DefaultMQProducer producer = s.producer();
        DefaultMQPushConsumer consumer = s.pushConsumer("replier");
        consumer.subscribe(s.topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            Sends.print(s, "replier", messages);
            try {
                for (MessageExt message : messages) {
                    if (message.getProperty("CORRELATION_ID") != null) {
                        String text = new String(message.getBody(), StandardCharsets.UTF_8);
                        producer.send(MessageUtil.createReplyMessage(message, bytes("reply to " + text)));
                    }
                }
            } catch (Exception error) {
                s.say("error", "error", error.toString());
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();

        TransactionMQProducer transactions = new TransactionMQProducer(s.group + "_transactions");
        transactions.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return (LocalTransactionState) argument;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.UNKNOW;
            }
        });
        s.started(transactions);
        transactions.sendMessageInTransaction(
            new Message(theirs, bytes("committed")), LocalTransactionState.COMMIT_MESSAGE);
        transactions.sendMessageInTransaction(
            new Message(theirs, bytes("rolled back")), LocalTransactionState.ROLLBACK_MESSAGE);
        Message late = new Message(theirs, bytes("late"));
        late.setDelayTimeLevel(1);
        producer.send(late);

        // Another producer: one that knows the route already does not tell the brokers who asks.
        Message question = new Message(theirs, bytes("a question"));
        Message reply = s.producer().request(question, Scenario.WAIT_MS);
        s.say("reply", "body", new String(reply.getBody(), StandardCharsets.UTF_8));
        s.awaitReceived(FROM_OURS);
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
