import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Loads Kafka by its Java client. Arguments and output: see __init__.py. */
public final class DriveKafka {
    private static final double WARM_UP_S = 3.0;
    private static final int LINGER_MS = 5;
    private static final int BATCH_BYTES = 256 << 10;
    private static final long BUFFER_BYTES = 64L << 20;
    private static final AtomicLong failed = new AtomicLong();

    public static void main(String[] arguments) throws Exception {
        String address = arguments[0];
        String topic = arguments[1];
        byte[] body = new byte[Integer.parseInt(arguments[3])];
        double seconds = Double.parseDouble(arguments[4]);
        switch (arguments[2]) {
            case "make" -> make(address, topic);
            case "state" -> state(address, topic);
            case "read" -> read(address, topic, seconds, Long.parseLong(arguments[5]));
            case "pipelined" -> pipelined(producer(address, LINGER_MS, 30_000), topic, body, seconds);
            case "single" -> single(producer(address, 0, 30_000), topic, body, seconds);
            case "gaps" -> gaps(producer(address, 0, 1_000), topic, body);
            default -> System.exit(2);
        }
        System.exit(0);
    }

    private static KafkaProducer<byte[], byte[]> producer(String address, int lingerMs, int timeoutMs) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", address);
        settings.put("acks", "all");
        settings.put("linger.ms", lingerMs);
        settings.put("batch.size", BATCH_BYTES);
        settings.put("buffer.memory", BUFFER_BYTES);
        settings.put("request.timeout.ms", timeoutMs - lingerMs);
        settings.put("delivery.timeout.ms", timeoutMs);
        settings.put("reconnect.backoff.ms", 20);
        settings.put("retry.backoff.ms", 20);
        settings.put("metadata.max.age.ms", 1_000);
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    /** A cluster that has just started needs a while. */
    private static void make(String address, String topic) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", address))) {
            for (int left = 60; ; left--) {
                try {
                    var made = new NewTopic(topic, Optional.empty(), Optional.empty());
                    admin.createTopics(List.of(made)).all().get();
                    break;
                } catch (ExecutionException error) {
                    if (left == 0) {
                        throw error;
                    }
                    Thread.sleep(500);
                }
            }
        }
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", address))) {
            for (int left = 60; left > 0; left--) {
                try {
                    admin.describeTopics(List.of(topic)).allTopicNames().get();
                    break;
                } catch (ExecutionException error) {
                    Thread.sleep(500);
                }
            }
        }
        Timing.say("{\"made\": 1}");
    }

    private static void state(String address, String topic) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", address))) {
            var parts = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions();
            boolean level = parts.stream().allMatch(part -> part.isr().size() == 3);
            Timing.say("{\"leader\": %d, \"level\": %d}", parts.get(0).leader().id(), level ? 1 : 0);
        }
    }

    private static long produceFor(
        KafkaProducer<byte[], byte[]> producer, String topic, byte[] body, double seconds) {
        long count = 0;
        for (double end = Timing.now() + seconds; count % 64 != 0 || Timing.now() < end; count++) {
            producer.send(new ProducerRecord<>(topic, body), (stored, error) -> {
                if (error != null) {
                    failed.incrementAndGet();
                }
            });
        }
        producer.flush();
        return count;
    }

    private static void pipelined(
        KafkaProducer<byte[], byte[]> producer, String topic, byte[] body, double seconds) {
        long before = produceFor(producer, topic, body, WARM_UP_S);
        failed.set(0);
        double began = Timing.now();
        double cpu = Timing.cpu();
        long count = produceFor(producer, topic, body, seconds);
        Timing.say("{\"count\": %d, \"seconds\": %.6f, \"cpu_s\": %.4f, \"sent\": %d, \"failed\": %d}",
            count - failed.get(), Timing.now() - began, Timing.cpu() - cpu, before + count, failed.get());
    }

    private static void single(
        KafkaProducer<byte[], byte[]> producer, String topic, byte[] body, double seconds)
        throws Exception {
        long before = 0;
        for (double warm = Timing.now() + WARM_UP_S; Timing.now() < warm; before++) {
            producer.send(new ProducerRecord<>(topic, body)).get();
        }
        double[] took = new double[1_000_000];
        int count = 0;
        double cpu = Timing.cpu();
        for (double end = Timing.now() + seconds; Timing.now() < end && count < took.length; count++) {
            double at = Timing.now();
            producer.send(new ProducerRecord<>(topic, body)).get();
            took[count] = Timing.now() - at;
        }
        double spent = Timing.cpu() - cpu;
        Arrays.sort(took, 0, count);
        Timing.say("{\"count\": %d, \"median_ms\": %.4f, \"p99_ms\": %.4f, \"cpu_s\": %.4f, \"sent\": %d}",
            count, 1e3 * took[count / 2], 1e3 * took[(int) (count * 0.99)], spent, before + count);
    }

    private static void read(String address, String topic, double seconds, long wanted) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", address);
        settings.put("max.poll.records", 4096);
        settings.put("enable.auto.commit", false);
        var bytes = new ByteArrayDeserializer();
        try (var consumer = new KafkaConsumer<>(settings, bytes, bytes)) {
            List<TopicPartition> parts = new ArrayList<>();
            consumer.partitionsFor(topic).forEach(p -> parts.add(new TopicPartition(topic, p.partition())));
            consumer.assign(parts);
            consumer.seekToBeginning(parts);
            long got = 0;
            double first = 0;
            double last = 0;
            double cpu = Timing.cpu();
            for (double end = Timing.now() + seconds + 5; got < wanted && Timing.now() < end; ) {
                int some = consumer.poll(Duration.ofMillis(100)).count();
                if (some > 0) {
                    last = Timing.now();
                    first = first == 0 ? last : first;
                    got += some;
                }
            }
            Timing.say("{\"count\": %d, \"seconds\": %.6f, \"cpu_s\": %.4f}",
                got, last - first, Timing.cpu() - cpu);
        }
    }

    private static void gaps(KafkaProducer<byte[], byte[]> producer, String topic, byte[] body)
        throws Exception {
        var gaps = new Timing.Gaps();
        while (System.in.available() == 0) {
            try {
                producer.send(new ProducerRecord<>(topic, 0, null, body)).get(1, TimeUnit.SECONDS);
            } catch (Exception error) {
                Thread.sleep(5);
                continue;
            }
            gaps.sent();
        }
    }
}
