import java.util.Collection;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** The old pull consumer, and the lite one in both of its modes. */
final class PullConsumers {
    private static final int POLL_MS = 500;

    private PullConsumers() {
    }

    static void register(Map<String, Driver.Steps> known) {
        known.put("pull_old", PullConsumers::old);
        known.put("search_offset", PullConsumers::search);
        known.put("lite_subscribe", s -> {
            PushConsumers.send(s, Sends.COUNT);
            DefaultLitePullConsumer consumer = s.liteConsumer("lite");
            consumer.subscribe(s.topic, "*");
            consumer.start();
            poll(s, consumer, "lite", Sends.COUNT);
        });
        known.put("sql_filter_lite", s -> {
            PushConsumers.orders(s);
            DefaultLitePullConsumer consumer = s.liteConsumer("lite");
            consumer.subscribe(s.topic, MessageSelector.bySql(PushConsumers.WANTED));
            consumer.start();
            poll(s, consumer, "lite", 4);
        });
        known.put("lite_assign_seek", PullConsumers::seek);
        known.put("lite_commit", PullConsumers::commit);
    }

    @SuppressWarnings("deprecation")
    private static void old(Scenario s) throws Exception {
        PushConsumers.send(s, Sends.COUNT);
        DefaultMQPullConsumer consumer = s.pullConsumer();
        for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(s.topic)) {
            long offset = consumer.minOffset(queue);
            long end = consumer.maxOffset(queue);
            while (offset < end) {
                PullResult result = consumer.pullBlockIfNotFound(queue, "*", offset, 4);
                if (result.getMsgFoundList() != null) {
                    Sends.print(s, "pull", result.getMsgFoundList());
                }
                offset = result.getNextBeginOffset();
            }
            PullResult nothing = consumer.pull(queue, "*", offset, 4);
            s.say("at_end", "status", nothing.getPullStatus().name());
            consumer.getOffsetStore().updateConsumeOffsetToBroker(queue, offset, false);
            s.say("stored", "wanted", offset, "found", consumer.fetchConsumeOffset(queue, true));
        }
    }

    @SuppressWarnings("deprecation")
    private static void search(Scenario s) throws Exception {
        PushConsumers.send(s, Sends.COUNT);
        DefaultMQPullConsumer consumer = s.pullConsumer();
        Collection<MessageQueue> queues = consumer.fetchSubscribeMessageQueues(s.topic);
        Thread.sleep(50);
        long between = System.currentTimeMillis();
        long now = between + 3_600_000;
        for (MessageQueue queue : queues) {
            s.say("before", "found", consumer.searchOffset(queue, 0), "min", consumer.minOffset(queue));
            s.say("between", "queue", queue.toString(), "end", consumer.maxOffset(queue),
                "found", consumer.searchOffset(queue, between));
        }
        PushConsumers.send(s, Sends.COUNT);
        for (MessageQueue queue : queues) {
            s.say("again", "queue", queue.toString(), "found", consumer.searchOffset(queue, between));
            s.say("after", "found", consumer.searchOffset(queue, now), "max", consumer.maxOffset(queue));
        }
    }

    private static void seek(Scenario s) throws Exception {
        PushConsumers.send(s, 3 * Sends.COUNT);
        DefaultLitePullConsumer consumer = s.liteConsumer("lite");
        consumer.setAutoCommit(false);
        consumer.start();
        Collection<MessageQueue> queues = consumer.fetchMessageQueues(s.topic);
        consumer.assign(queues);
        poll(s, consumer, "assigned", 3 * Sends.COUNT);
        for (MessageQueue queue : queues) {
            consumer.seek(queue, 1);
        }
        poll(s, consumer, "sought", 3 * Sends.COUNT - queues.size());
        for (MessageQueue queue : queues) {
            consumer.seekToEnd(queue);
        }
        PushConsumers.send(s, 1);
        poll(s, consumer, "end", 1);
        for (MessageQueue queue : queues) {
            consumer.seekToBegin(queue);
        }
        poll(s, consumer, "begin", 3 * Sends.COUNT + 1);
    }

    private static void commit(Scenario s) throws Exception {
        PushConsumers.send(s, Sends.COUNT);
        DefaultLitePullConsumer first = s.liteConsumer("first");
        first.setAutoCommit(false);
        first.subscribe(s.topic, "*");
        first.start();
        poll(s, first, "first", Sends.COUNT);
        first.commitSync();
        for (MessageQueue queue : first.assignment()) {
            s.say("committed", "queue", queue.toString(), "offset", first.committed(queue));
        }
        first.shutdown();
        PushConsumers.send(s, Sends.COUNT);
        DefaultLitePullConsumer second = s.liteConsumer("second");
        second.subscribe(s.topic, "*");
        second.start();
        poll(s, second, "second", Sends.COUNT);
    }

    /** Poll until so many came and a poll more found none, or the deadline. */
    static void poll(Scenario s, DefaultLitePullConsumer consumer, String name, int count) {
        long deadline = System.currentTimeMillis() + Scenario.WAIT_MS;
        int found = 0;
        while (System.currentTimeMillis() < deadline) {
            List<MessageExt> messages = consumer.poll(POLL_MS);
            Sends.print(s, name, messages);
            found += messages.size();
            if (found >= count && messages.isEmpty()) {
                return;
            }
        }
    }
}
