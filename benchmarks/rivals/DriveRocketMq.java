import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Loads RocketMQ, or ours, by the stock Java client. Arguments and output: see __init__.py. */
public final class DriveRocketMq {
    private static final int OUTSTANDING_MAX = 1024;
    private static final int BATCH = 64;
    private static final int SENDERS = 4;
    private static final double WARM_UP_S = 3.0;
    private static final AtomicLong failed = new AtomicLong();

    public static void main(String[] arguments) throws Exception {
        String namesrv = arguments[0];
        String topic = arguments[1];
        byte[] body = new byte[Integer.parseInt(arguments[3])];
        double seconds = Double.parseDouble(arguments[4]);
        if (arguments[2].equals("read")) {
            read(namesrv, topic, seconds, Long.parseLong(arguments[5]));
            System.exit(0);
        }
        DefaultMQProducer producer = new DefaultMQProducer("benchmark");
        producer.setNamesrvAddr(namesrv);
        producer.setSendMsgTimeout(10_000);
        producer.start();
        warmUp(producer, topic, body);
        switch (arguments[2]) {
            case "pipelined" -> measure(() -> pipelined(producer, topic, body, seconds),
                () -> pipelined(producer, topic, body, WARM_UP_S));
            case "batches" -> measure(() -> batches(producer, topic, body, seconds),
                () -> batches(producer, topic, body, WARM_UP_S));
            case "single" -> single(producer, topic, body, seconds);
            case "gaps" -> gaps(producer, topic, body);
            default -> System.exit(2);
        }
        System.exit(0);
    }

    private interface Work {
        long run() throws Exception;
    }

    /** The first route may take a while, where the topic is made by the first send. */
    private static void warmUp(DefaultMQProducer producer, String topic, byte[] body)
        throws Exception {
        for (int left = 60; ; left--) {
            try {
                producer.send(new Message(topic, body));
                return;
            } catch (Exception error) {
                if (left == 0) {
                    throw error;
                }
                Thread.sleep(500);
            }
        }
    }

    private static void measure(Work work, Work warmUp) throws Exception {
        long before = warmUp.run();
        failed.set(0);
        double began = Timing.now();
        double cpu = Timing.cpu();
        long count = work.run();
        Timing.say("{\"count\": %d, \"seconds\": %.6f, \"cpu_s\": %.4f, \"sent\": %d, \"failed\": %d}",
            count - failed.get(), Timing.now() - began, Timing.cpu() - cpu, before + count, failed.get());
    }

    private static long pipelined(
        DefaultMQProducer producer, String topic, byte[] body, double seconds) throws Exception {
        Semaphore room = new Semaphore(OUTSTANDING_MAX);
        double end = Timing.now() + seconds;
        long count = 0;
        for (; Timing.now() < end; count++) {
            room.acquire();
            producer.send(new Message(topic, body), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    room.release();
                }

                @Override
                public void onException(Throwable error) {
                    failed.incrementAndGet();
                    room.release();
                }
            });
        }
        room.acquire(OUTSTANDING_MAX);
        return count;
    }

    private static long batches(
        DefaultMQProducer producer, String topic, byte[] body, double seconds) throws Exception {
        double end = Timing.now() + seconds;
        AtomicLong count = new AtomicLong();
        Thread[] senders = new Thread[SENDERS];
        for (int i = 0; i < SENDERS; i++) {
            senders[i] = new Thread(() -> {
                while (Timing.now() < end) {
                    List<Message> batch = new ArrayList<>(BATCH);
                    for (int each = 0; each < BATCH; each++) {
                        batch.add(new Message(topic, body));
                    }
                    try {
                        producer.send(batch);
                    } catch (Exception error) {
                        failed.addAndGet(BATCH);
                    }
                    count.addAndGet(BATCH);
                }
            });
            senders[i].start();
        }
        for (Thread sender : senders) {
            sender.join();
        }
        return count.get();
    }

    private static void single(
        DefaultMQProducer producer, String topic, byte[] body, double seconds) throws Exception {
        double warm = Timing.now() + WARM_UP_S;
        long before = 0;
        for (; Timing.now() < warm; before++) {
            producer.send(new Message(topic, body));
        }
        double[] took = new double[1_000_000];
        int count = 0;
        double cpu = Timing.cpu();
        for (double end = Timing.now() + seconds; Timing.now() < end && count < took.length; count++) {
            double at = Timing.now();
            producer.send(new Message(topic, body));
            took[count] = Timing.now() - at;
        }
        double spent = Timing.cpu() - cpu;
        Arrays.sort(took, 0, count);
        Timing.say("{\"count\": %d, \"median_ms\": %.4f, \"p99_ms\": %.4f, \"cpu_s\": %.4f, \"sent\": %d}",
            count, 1e3 * took[count / 2], 1e3 * took[(int) (count * 0.99)], spent, before + count);
    }

    private static void read(String namesrv, String topic, double seconds, long wanted)
        throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("reader");
        consumer.setNamesrvAddr(namesrv);
        consumer.setAutoCommit(false);
        consumer.setPullBatchSize(1024);
        consumer.start();
        var queues = consumer.fetchMessageQueues(topic);
        consumer.assign(queues);
        for (var queue : queues) {
            consumer.seekToBegin(queue);
        }
        long got = 0;
        double first = 0;
        double last = 0;
        double cpu = Timing.cpu();
        double end = Timing.now() + seconds + 5;
        while (got < wanted && Timing.now() < end) {
            List<MessageExt> some = consumer.poll(100);
            if (!some.isEmpty()) {
                last = Timing.now();
                first = first == 0 ? last : first;
                got += some.size();
            }
        }
        Timing.say("{\"count\": %d, \"seconds\": %.6f, \"cpu_s\": %.4f}",
            got, last - first, Timing.cpu() - cpu);
    }

    private static void gaps(DefaultMQProducer producer, String topic, byte[] body)
        throws Exception {
        producer.setSendMsgTimeout(1000);
        var gaps = new Timing.Gaps();
        while (System.in.available() == 0) {
            try {
                producer.send(new Message(topic, body));
            } catch (Exception error) {
                Thread.sleep(5);
                continue;
            }
            gaps.sent();
        }
    }
}
