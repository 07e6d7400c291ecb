import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sends steadily, one synchronous send after the other, and reads it all back in order; prints a
 * history as chaos writes it, for the same judges. Sending ends at the first line on stdin, the
 * process at the second.
 *
 * <p>Arguments: name servers, the client's name, topic, producers, pause between sends (ms), route
 * poll (ms; 30,000 unless an application says otherwise). With one more, a send that failed is made
 * again after so many ms, with the same object, until it succeeds.
 */
public final class Steady {
    private static volatile boolean sending = true;

    public static void main(String[] arguments) throws Exception {
        String namesrv = arguments[0];
        String client = arguments[1];
        String topic = arguments[2];
        int pause = Integer.parseInt(arguments[4]);
        int poll = Integer.parseInt(arguments[5]);
        int again = arguments.length > 6 ? Integer.parseInt(arguments[6]) : -1;
        warmUp(namesrv, client, topic);
        DefaultMQPushConsumer consumer = consumer(namesrv, client, topic, poll);
        Thread[] senders = new Thread[Integer.parseInt(arguments[3])];
        for (int i = 0; i < senders.length; i++) {
            String name = client + "-" + topic + "-" + i;
            DefaultMQProducer producer = new DefaultMQProducer(name);
            producer.setNamesrvAddr(namesrv);
            producer.setInstanceName(name);
            producer.setPollNameServerInterval(poll);
            producer.start();
            senders[i] = new Thread(() -> {
                try {
                    send(producer, name, topic, pause, again);
                } catch (InterruptedException error) {
                    throw new IllegalStateException(error);
                }
            });
            senders[i].start();
        }
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        commands.readLine();
        sending = false;
        for (Thread sender : senders) {
            sender.join();
        }
        say("sent", "\"client\":\"" + client + "\"");
        commands.readLine();
        consumer.shutdown();
        System.exit(0);
    }

    /** Find a name server: a cold JVM on a busy machine misses its own timeouts, once. */
    private static void warmUp(String namesrv, String client, String topic) throws Exception {
        try (Scenario scenario = new Scenario(namesrv, client, "warm_up_" + topic)) {
            DefaultMQProducer producer = scenario.producer();
            Scenario.await(() -> !producer.fetchPublishMessageQueues(topic).isEmpty());
        }
    }

    private static void send(
        DefaultMQProducer producer, String name, String topic, int pause, int again)
        throws InterruptedException {
        for (int number = 0; sending; number++) {
            byte[] body = (name + " " + number).getBytes(StandardCharsets.UTF_8);
            Message message = new Message(topic, body);
            MessageClientIDSetter.setUniqID(message);
            String id = MessageClientIDSetter.getUniqID(message);
            String who = "\"client\":\"" + name + "\",\"id\":\"" + id + "\"";
            String what = ",\"topic\":\"" + topic + "\"";
            say("send", who + what + ",\"key\":\"\",\"crc\":" + Scenario.crc(body)
                + ",\"size\":" + body.length);
            while (!sent(producer, message, who, what, again >= 0)) {
                Thread.sleep(again);
            }
            Thread.sleep(pause);
        }
        producer.shutdown();
    }

    /** Whether the send has come to its end; if not, the application will make it again. */
    private static boolean sent(
        DefaultMQProducer producer, Message message, String who, String what, boolean again)
        throws InterruptedException {
        try {
            SendResult result = producer.send(message);
            String position = result.getOffsetMsgId().substring(16);
            say("ack", who + what
                + ",\"broker\":\"" + result.getMessageQueue().getBrokerName()
                + "\",\"queue_id\":" + result.getMessageQueue().getQueueId()
                + ",\"offset\":" + result.getQueueOffset()
                + ",\"position\":" + Long.parseUnsignedLong(position, 16));
            return true;
        } catch (Exception error) {
            if (again) {
                say("again", who);
                return false;
            }
            String text = error.toString().split("\n")[0].replace('"', '\'').replace('\\', '/');
            say("fail", who + ",\"definite\":false,\"error\":\"" + text + "\"");
            return true;
        }
    }

    private static DefaultMQPushConsumer consumer(
        String namesrv, String client, String topic, int poll) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(client + "-" + topic);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(client + "-" + topic + "-reader");
        consumer.setPollNameServerInterval(poll);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            for (MessageExt message : messages) {
                say("deliver", "\"client\":\"" + client + "\",\"group\":\"" + client + "-" + topic
                    + "\",\"topic\":\"" + topic + "\",\"broker\":\"" + message.getBrokerName()
                    + "\",\"queue_id\":" + message.getQueueId()
                    + ",\"offset\":" + message.getQueueOffset()
                    + ",\"id\":\"" + message.getMsgId()
                    + "\",\"crc\":" + Scenario.crc(message.getBody()));
            }
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        return consumer;
    }

    /** One event; nanoTime is the clock of the harness, CLOCK_MONOTONIC. */
    private static void say(String kind, String members) {
        synchronized (System.out) {
            System.out.println(
                "{\"kind\":\"" + kind + "\",\"t\":" + System.nanoTime() + "," + members + "}");
        }
    }
}
