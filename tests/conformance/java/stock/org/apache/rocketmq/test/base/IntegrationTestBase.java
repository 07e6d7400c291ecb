package org.apache.rocketmq.test.base;

import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.common.TopicAttributes;
import org.apache.rocketmq.common.attribute.CQType;
import org.apache.rocketmq.common.attribute.TopicMessageType;
import org.apache.rocketmq.test.util.MQAdminTestUtils;

/** Makes topics, as the class of this name does; it starts no servers. */
public class IntegrationTestBase {
    private static final int QUEUES = 8;
    private static final int VISIBLE_S = 30;

    public static boolean initTopic(String topic, String namesrv, String cluster, CQType queues) {
        return initTopic(topic, namesrv, cluster, QUEUES, queues, TopicMessageType.NORMAL);
    }

    public static boolean initTopic(
        String topic, String namesrv, String cluster, TopicMessageType messages) {
        return initTopic(topic, namesrv, cluster, QUEUES, CQType.SimpleCQ, messages);
    }

    public static boolean initTopic(
        String topic, String namesrv, String cluster, int count, CQType queues) {
        return initTopic(topic, namesrv, cluster, count, queues, TopicMessageType.NORMAL);
    }

    /** The kinds that brokers assume anyway are not said. */
    public static boolean initTopic(String topic, String namesrv, String cluster, int count,
        CQType queues, TopicMessageType messages) {
        Map<String, String> attributes = new HashMap<>();
        if (queues != CQType.SimpleCQ) {
            attributes.put("+" + TopicAttributes.QUEUE_TYPE_ATTRIBUTE.getName(), queues.toString());
        }
        if (messages != TopicMessageType.NORMAL) {
            attributes.put(
                "+" + TopicAttributes.TOPIC_MESSAGE_TYPE_ATTRIBUTE.getName(), messages.toString());
        }
        return MQAdminTestUtils.createTopic(namesrv, cluster, topic, count, attributes, VISIBLE_S);
    }
}
