package org.apache.rocketmq.test.base;

import java.lang.reflect.Method;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.stream.Collectors;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.common.attribute.CQType;
import org.apache.rocketmq.common.attribute.TopicMessageType;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.test.client.rmq.RMQAsyncSendProducer;
import org.apache.rocketmq.test.client.rmq.RMQNormalConsumer;
import org.apache.rocketmq.test.client.rmq.RMQNormalProducer;
import org.apache.rocketmq.test.client.rmq.RMQTransactionalProducer;
import org.apache.rocketmq.test.factory.ConsumerFactory;
import org.apache.rocketmq.test.listener.AbstractListener;
import org.apache.rocketmq.test.util.MQAdminTestUtils;
import org.apache.rocketmq.test.util.MQRandomUtils;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import standins.Brokers;

/**
 * What RocketMQ's integration tests extend, with its members' names: but the servers are processes
 * elsewhere, which the system property {@code cluster.namesrv} leads to.
 */
public class BaseConf {
    public static final String NAMESRV_ADDR = System.getProperty("cluster.namesrv");
    private static final Brokers BROKERS = new Brokers(NAMESRV_ADDR);
    protected static final String CLUSTER_NAME = BROKERS.cluster();
    protected static final String BROKER1_NAME = BROKERS.name(0);
    protected static final String BROKER2_NAME = BROKERS.name(1);
    protected static final String BROKER3_NAME = BROKERS.name(2);

    protected static NamesrvController namesrvController = Brokers.namesrv();
    protected static BrokerController brokerController1 = BROKERS.controller(BROKER1_NAME);
    protected static BrokerController brokerController2 = BROKERS.controller(BROKER2_NAME);
    protected static BrokerController brokerController3 = BROKERS.controller(BROKER3_NAME);
    protected static List<BrokerController> brokerControllerList =
        List.of(brokerController1, brokerController2, brokerController3);
    protected static Map<String, BrokerController> brokerControllerMap =
        brokerControllerList.stream().collect(Collectors.toMap(
            each -> each.getBrokerConfig().getBrokerName(), each -> each, (one, same) -> one));
    protected static List<Object> mqClients = new CopyOnWriteArrayList<>();
    protected static boolean debug;

    static {
        try {
            MQAdminTestUtils.startAdmin(NAMESRV_ADDR);
        } catch (MQClientException error) {
            throw new ExceptionInInitializerError(error);
        }
    }

    /** Nothing to wait for: the cluster was there before this process. */
    public static void waitBrokerRegistered(String namesrv, String cluster, int count) {
    }

    public static String initTopic() {
        return initTopicWithName(MQRandomUtils.getRandomTopic());
    }

    public static String initTopicWithName(String topic) {
        IntegrationTestBase.initTopic(topic, NAMESRV_ADDR, CLUSTER_NAME, CQType.SimpleCQ);
        return topic;
    }

    public static String initTopic(TopicMessageType type) {
        return initTopicWithName(MQRandomUtils.getRandomTopic(), type);
    }

    public static String initTopicWithName(String topic, TopicMessageType type) {
        IntegrationTestBase.initTopic(topic, NAMESRV_ADDR, CLUSTER_NAME, type);
        return topic;
    }

    public static String initConsumerGroup() {
        return initConsumerGroup(MQRandomUtils.getRandomConsumerGroup());
    }

    public static String initConsumerGroup(String group) {
        SubscriptionGroupConfig config = new SubscriptionGroupConfig();
        config.setGroupName(group);
        return initConsumerGroup(config);
    }

    public static String initConsumerGroup(SubscriptionGroupConfig config) {
        MQAdminTestUtils.createSub(NAMESRV_ADDR, CLUSTER_NAME, config);
        return config.getGroupName();
    }

    public static Set<String> getBrokers() {
        return new HashSet<>(BROKERS.names());
    }

    public static DefaultMQAdminExt getAdmin(String namesrv) {
        DefaultMQAdminExt admin = new DefaultMQAdminExt(3_000);
        admin.setNamesrvAddr(namesrv);
        admin.setPollNameServerInterval(100);
        return kept(admin);
    }

    public static RMQNormalProducer getProducer(String namesrv, String topic) {
        return getProducer(namesrv, topic, false);
    }

    public static RMQNormalProducer getProducer(String namesrv, String topic, boolean useTls) {
        return kept(new RMQNormalProducer(namesrv, topic, useTls));
    }

    public static RMQNormalProducer getProducer(
        String namesrv, String topic, String group, String instance) {
        return kept(new RMQNormalProducer(namesrv, topic, group, instance));
    }

    public static RMQTransactionalProducer getTransactionalProducer(
        String namesrv, String topic, TransactionListener listener) {
        return kept(new RMQTransactionalProducer(namesrv, topic, false, listener));
    }

    public static RMQAsyncSendProducer getAsyncProducer(String namesrv, String topic) {
        return kept(new RMQAsyncSendProducer(namesrv, topic));
    }

    public static RMQNormalConsumer getConsumer(
        String namesrv, String topic, String expression, AbstractListener listener) {
        return getConsumer(namesrv, initConsumerGroup(), topic, expression, listener);
    }

    public static RMQNormalConsumer getConsumer(
        String namesrv, String topic, String expression, AbstractListener listener, boolean tls) {
        return getConsumer(namesrv, initConsumerGroup(), topic, expression, listener, tls);
    }

    public static RMQNormalConsumer getConsumer(
        String namesrv, String group, String topic, String expression, AbstractListener listener) {
        return getConsumer(namesrv, group, topic, expression, listener, false);
    }

    public static RMQNormalConsumer getConsumer(String namesrv, String group, String topic,
        String expression, AbstractListener listener, boolean useTls) {
        return kept(ConsumerFactory.getRMQNormalConsumer(
            namesrv, group, topic, expression, listener, useTls));
    }

    public static void shutdown() {
        List<Object> clients = List.copyOf(mqClients);
        mqClients.clear();
        shutdown(clients);
    }

    public static void shutdown(List<Object> clients) {
        clients.parallelStream().forEach(BaseConf::end);
    }

    private static <T> T kept(T client) {
        mqClients.add(client);
        return client;
    }

    /** All clients end by a method of this name, but have no type in common. */
    private static void end(Object client) {
        try {
            Method shutdown = client.getClass().getMethod("shutdown");
            shutdown.invoke(client);
        } catch (ReflectiveOperationException error) {
            System.err.println("a client did not end: " + error);
        }
    }
}
