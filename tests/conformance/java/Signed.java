import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * Sends three messages as one user, and receives them as another.
 *
 * <p>Arguments: name servers, topic, group, sender, reader; the password of both is in PASSWORD.
 */
public final class Signed {
    private static final int MESSAGES = 3;
    /** A machine that does much else may be long at a connection's first handshake. */
    private static final long SEND_MS = 60_000;

    public static void main(String[] arguments) throws Exception {
        CountDownLatch received = new CountDownLatch(MESSAGES);
        DefaultMQProducer producer = new DefaultMQProducer("P", as(arguments[3]));
        producer.setNamesrvAddr(arguments[0]);
        producer.setInstanceName("sender");
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
            arguments[2], as(arguments[4]), new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(arguments[0]);
        consumer.setInstanceName("reader");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(arguments[1], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> received.countDown());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        try {
            producer.start();
            for (int i = 0; i < MESSAGES; i++) {
                byte[] body = ("signed " + i).getBytes(StandardCharsets.UTF_8);
                System.out.println(producer.send(new Message(arguments[1], body), SEND_MS).getSendStatus());
            }
            consumer.start();
            System.out.println(received.await(60, TimeUnit.SECONDS) ? "RECEIVED" : "MISSING");
        } catch (Exception error) {
            String cause = String.valueOf(error.getCause()).replace("\n", " ");
            System.out.println("REFUSED " + error.getMessage().replace("\n", " ") + " " + cause);
        }
        System.exit(0); // The stock client leaves threads behind that are no daemons.
    }

    private static RPCHook as(String user) {
        return new AclClientRPCHook(new SessionCredentials(user, System.getenv("PASSWORD")));
    }
}
