import com.rabbitmq.client.Address;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.MessageProperties;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;

/** Loads a quorum queue of RabbitMQ by its Java client. Arguments and output: see __init__.py. */
public final class DriveRabbit {
    private static final double WARM_UP_S = 3.0;
    private static final int WINDOW = 8192;
    private static final int CONFIRM_TIMEOUT_MS = 30_000;
    private static final int GAP_TIMEOUT_MS = 1_000;

    public static void main(String[] arguments) throws Exception {
        List<Address> addresses = List.of(Address.parseAddresses(arguments[0]));
        String queue = arguments[1];
        byte[] body = new byte[Integer.parseInt(arguments[3])];
        double seconds = Double.parseDouble(arguments[4]);
        if (arguments[2].equals("gaps")) {
            gaps(addresses, queue, body);
        } else {
            Channel channel = factory().newConnection(addresses).createChannel();
            switch (arguments[2]) {
                case "make" -> make(channel, queue);
                case "pipelined" -> pipelined(channel, queue, body, seconds);
                case "single" -> single(channel, queue, body, seconds);
                case "read" -> read(channel, queue, seconds, Long.parseLong(arguments[5]));
                default -> System.exit(2);
            }
        }
        System.exit(0);
    }

    private static ConnectionFactory factory() {
        ConnectionFactory factory = new ConnectionFactory();
        factory.setAutomaticRecoveryEnabled(false);
        factory.setConnectionTimeout(GAP_TIMEOUT_MS);
        return factory;
    }

    private static void make(Channel channel, String queue) throws Exception {
        channel.queueDeclare(queue, true, false, false, Map.of("x-queue-type", "quorum"));
        Timing.say("{\"made\": 1}");
    }

    private static void send(Channel channel, String queue, byte[] body) throws Exception {
        channel.basicPublish("", queue, MessageProperties.PERSISTENT_BASIC, body);
    }

    /** Publishes with a window of messages that wait for their confirms. */
    private static final class Window {
        private final Semaphore free = new Semaphore(WINDOW);
        private final ConcurrentSkipListSet<Long> waiting = new ConcurrentSkipListSet<>();
        private final AtomicLong failed = new AtomicLong();
        private final Channel channel;

        Window(Channel channel) throws Exception {
            this.channel = channel;
            channel.confirmSelect();
            channel.addConfirmListener(
                (tag, multiple) -> done(tag, multiple, false), (tag, multiple) -> done(tag, multiple, true));
        }

        private void done(long tag, boolean multiple, boolean refused) {
            int count = 1;
            if (multiple) {
                var upTo = waiting.headSet(tag, true);
                count = upTo.size();
                upTo.clear();
            } else {
                waiting.remove(tag);
            }
            failed.addAndGet(refused ? count : 0);
            free.release(count);
        }

        long produceFor(String queue, byte[] body, double seconds) throws Exception {
            long count = 0;
            for (double end = Timing.now() + seconds; count % 64 != 0 || Timing.now() < end; count++) {
                free.acquire();
                waiting.add(channel.getNextPublishSeqNo());
                send(channel, queue, body);
            }
            free.acquire(WINDOW);
            free.release(WINDOW);
            return count;
        }
    }

    private static void pipelined(Channel channel, String queue, byte[] body, double seconds) throws Exception {
        Window window = new Window(channel);
        long before = window.produceFor(queue, body, WARM_UP_S);
        window.failed.set(0);
        double began = Timing.now();
        double cpu = Timing.cpu();
        long count = window.produceFor(queue, body, seconds);
        long failed = window.failed.get();
        Timing.say("{\"count\": %d, \"seconds\": %.6f, \"cpu_s\": %.4f, \"sent\": %d, \"failed\": %d}",
            count - failed, Timing.now() - began, Timing.cpu() - cpu, before + count, failed);
    }

    private static void single(Channel channel, String queue, byte[] body, double seconds) throws Exception {
        channel.confirmSelect();
        long before = 0;
        for (double warm = Timing.now() + WARM_UP_S; Timing.now() < warm; before++) {
            send(channel, queue, body);
            channel.waitForConfirmsOrDie(CONFIRM_TIMEOUT_MS);
        }
        double[] took = new double[1_000_000];
        int count = 0;
        double cpu = Timing.cpu();
        for (double end = Timing.now() + seconds; Timing.now() < end && count < took.length; count++) {
            double at = Timing.now();
            send(channel, queue, body);
            channel.waitForConfirmsOrDie(CONFIRM_TIMEOUT_MS);
            took[count] = Timing.now() - at;
        }
        double spent = Timing.cpu() - cpu;
        Arrays.sort(took, 0, count);
        Timing.say("{\"count\": %d, \"median_ms\": %.4f, \"p99_ms\": %.4f, \"cpu_s\": %.4f, \"sent\": %d}",
            count, 1e3 * took[count / 2], 1e3 * took[(int) (count * 0.99)], spent, before + count);
    }

    /** Without acknowledgements, as the queue drops what it has handed over. */
    private static void read(Channel channel, String queue, double seconds, long wanted) throws Exception {
        AtomicLong got = new AtomicLong();
        double[] when = new double[2];
        double cpu = Timing.cpu();
        channel.basicConsume(queue, true, (tag, message) -> {
            when[1] = Timing.now();
            if (got.incrementAndGet() == 1) {
                when[0] = when[1];
            }
        }, tag -> { });
        for (double end = Timing.now() + seconds + 5; got.get() < wanted && Timing.now() < end; ) {
            Thread.sleep(10);
        }
        Timing.say("{\"count\": %d, \"seconds\": %.6f, \"cpu_s\": %.4f}",
            got.get(), when[1] - when[0], Timing.cpu() - cpu);
    }

    /** A connection to the next node whenever a send fails. */
    private static void gaps(List<Address> addresses, String queue, byte[] body) throws Exception {
        Connection connection = null;
        Channel channel = null;
        var gaps = new Timing.Gaps();
        while (System.in.available() == 0) {
            try {
                if (channel == null) {
                    connection = factory().newConnection(addresses);
                    channel = connection.createChannel();
                    channel.confirmSelect();
                }
                send(channel, queue, body);
                channel.waitForConfirmsOrDie(GAP_TIMEOUT_MS);
            } catch (Exception error) {
                if (connection != null) {
                    connection.abort();
                }
                channel = null;
                Thread.sleep(5);
                continue;
            }
            gaps.sent();
        }
    }
}
