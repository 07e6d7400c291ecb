package standins;

import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.offset.ConsumerOffsetManager;
import org.apache.rocketmq.broker.topic.TopicConfigManager;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.exception.OffsetNotFoundException;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.protocol.admin.OffsetWrapper;
import org.apache.rocketmq.remoting.protocol.header.QueryConsumerOffsetRequestHeader;
import org.apache.rocketmq.remoting.protocol.route.BrokerData;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** The cluster as tests want it in their own process: each answer is a question over the wire. */
public final class Brokers {
    private static final long TIMEOUT_MS = 5_000;
    private static final long LEADER = 0L;
    /** They set these to wait less, or to what our brokers do anyway. */
    private static final Set<String> NO_MATTER = Set.of("setLongPollingEnable",
        "setShortPollingTimeMills", "setEstimateAccumulation", "setUseServerSideResetOffset",
        "setEnableSingleTopicRegister", "setEnablePopBufferMerge",
        "setEnableNotifyAfterPopOrderLockRelease", "setPopConsumerKVServiceEnable",
        "setPopConsumerKVServiceInit", "setEnableRetryTopicV2", "setRetrieveMessageFromPopRetryTopicV1");

    private final DefaultMQAdminExt admin = new DefaultMQAdminExt(TIMEOUT_MS);

    public Brokers(String namesrv) {
        admin.setNamesrvAddr(namesrv);
        admin.setInstanceName("stand-ins");
        try {
            admin.start();
        } catch (MQClientException error) {
            throw new IllegalStateException(error);
        }
    }

    /** The only cluster's name. */
    public String cluster() {
        return table().values().iterator().next().getCluster();
    }

    /** The groups' names, in order. */
    public List<String> names() {
        return List.copyOf(new TreeSet<>(table().keySet()));
    }

    /** The name of a group by its number; a smaller cluster has the last one several times. */
    public String name(int number) {
        List<String> names = names();
        return names.get(Math.min(number, names.size() - 1));
    }

    /** Name servers answer nothing that a test asks of their object. */
    public static NamesrvController namesrv() {
        return StandIn.of(NamesrvController.class, (method, arguments) -> {
            throw StandIn.unknown(NamesrvController.class, method);
        });
    }

    /** A broker of a group: the one that leads it now. */
    public BrokerController controller(String name) {
        String address = table().get(name).getBrokerAddrs().get(LEADER);
        return StandIn.of(BrokerController.class, (method, arguments) -> {
            switch (method) {
                case "getBrokerAddr":
                    return address;
                case "getBrokerConfig":
                    return config(name);
                case "getMessageStore":
                    return store(name, address);
                case "getConsumerOffsetManager":
                    return offsets(name, address);
                case "getTopicConfigManager":
                    return topics(address);
                default:
                    throw StandIn.unknown(BrokerController.class, method);
            }
        });
    }

    private BrokerConfig config(String name) {
        return StandIn.of(BrokerConfig.class, (method, arguments) -> {
            if (method.equals("getBrokerName")) {
                return name;
            }
            if (NO_MATTER.contains(method)) {
                return null;
            }
            throw StandIn.unknown(BrokerConfig.class, method);
        });
    }

    private DefaultMessageStore store(String name, String address) {
        return StandIn.of(DefaultMessageStore.class, (method, arguments) -> {
            switch (method) {
                case "getMinOffsetInQueue":
                    return admin.minOffset(queue(name, arguments));
                case "getMaxOffsetInQueue":
                    return admin.maxOffset(queue(name, arguments));
                case "dispatchBehindBytes":
                    return Long.valueOf(admin.fetchBrokerRuntimeStats(address).getTable()
                        .get("dispatchBehindBytes"));
                default:
                    throw StandIn.unknown(DefaultMessageStore.class, method);
            }
        });
    }

    private ConsumerOffsetManager offsets(String name, String address) {
        return StandIn.of(ConsumerOffsetManager.class, (method, arguments) -> {
            String group = (String) arguments[0];
            String topic = (String) arguments[1];
            int queue = (int) arguments[2];
            switch (method) {
                case "queryOffset":
                    return committed(address, group, topic, queue);
                case "queryPullOffset":
                    Map<MessageQueue, OffsetWrapper> table =
                        admin.examineConsumeStats(group, topic).getOffsetTable();
                    return table.get(new MessageQueue(topic, name, queue)).getPullOffset();
                default:
                    throw StandIn.unknown(ConsumerOffsetManager.class, method);
            }
        });
    }

    private TopicConfigManager topics(String address) {
        return StandIn.of(TopicConfigManager.class, (method, arguments) -> {
            if (method.equals("getTopicConfigTable")) {
                return admin.getAllTopicConfig(address, TIMEOUT_MS).getTopicConfigTable();
            }
            throw StandIn.unknown(TopicConfigManager.class, method);
        });
    }

    /** -1 for none, as brokers say it among themselves. */
    private long committed(String address, String group, String topic, int queue)
        throws Exception {
        QueryConsumerOffsetRequestHeader header = new QueryConsumerOffsetRequestHeader();
        header.setConsumerGroup(group);
        header.setTopic(topic);
        header.setQueueId(queue);
        header.setSetZeroIfNotFound(false);
        try {
            return admin.getDefaultMQAdminExtImpl().getMqClientInstance().getMQClientAPIImpl()
                .queryConsumerOffset(address, header, TIMEOUT_MS);
        } catch (OffsetNotFoundException none) {
            return -1;
        }
    }

    private static MessageQueue queue(String name, Object[] topicAndQueue) {
        return new MessageQueue((String) topicAndQueue[0], name, (int) topicAndQueue[1]);
    }

    private Map<String, BrokerData> table() {
        try {
            return admin.examineBrokerClusterInfo().getBrokerAddrTable();
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }
}
