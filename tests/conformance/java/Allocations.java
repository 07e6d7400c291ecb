import java.util.*;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.*;
import org.apache.rocketmq.common.message.MessageQueue;

/** What RocketMQ's own classes allocate, a case a line: strategy, members, queues of each broker, who gets which. */
public class Allocations {
    public static void main(String[] args) {
        AllocateMessageQueueByMachineRoom rooms = new AllocateMessageQueueByMachineRoom();
        rooms.setConsumeridcs(new HashSet<>(Arrays.asList("north", "west")));
        Map<String, AllocateMessageQueueStrategy> strategies = new LinkedHashMap<>();
        strategies.put("averaged", new AllocateMessageQueueAveragely());
        strategies.put("circular", new AllocateMessageQueueAveragelyByCircle());
        strategies.put("hashed", new AllocateMessageQueueConsistentHash());
        strategies.put("hashed 3", new AllocateMessageQueueConsistentHash(3));
        strategies.put("rooms", rooms);
        // A broker's room is what its name has before an @; a member's follows from its address.
        AllocateMachineRoomNearby.MachineRoomResolver resolver = new AllocateMachineRoomNearby.MachineRoomResolver() {
            public String brokerDeployIn(MessageQueue queue) { return queue.getBrokerName().split("@")[0]; }
            public String consumerDeployIn(String clientID) {
                return new String[] {"north", "south", "west", "größer", "nowhere"}[Integer.parseInt(clientID.split("[.]")[2]) % 5];
            }
        };
        strategies.put("nearby averaged", new AllocateMachineRoomNearby(new AllocateMessageQueueAveragely(), resolver));
        strategies.put("nearby circular", new AllocateMachineRoomNearby(new AllocateMessageQueueAveragelyByCircle(), resolver));
        Random random = new Random(15);
        String[] brokers = {"broker-a", "north@b-1", "south@b-2", "west@b-3", "x@y@z", "größer"};
        for (int run = 0; run < 40; run++) {
            TreeSet<String> ids = new TreeSet<>();
            int members = 1 + random.nextInt(7);
            while (ids.size() < members) ids.add("10.0." + random.nextInt(20) + "." + random.nextInt(250) + "@" + random.nextInt(9999));
            TreeSet<MessageQueue> set = new TreeSet<>();
            StringBuilder told = new StringBuilder();
            for (String broker : brokers) {
                int count = random.nextInt(7);
                for (int i = 0; i < count; i++) set.add(new MessageQueue("Orders", broker, i));
                told.append(told.length() > 0 ? "," : "").append(count);
            }
            if (set.isEmpty()) continue;
            List<String> cids = new ArrayList<>(ids);
            List<MessageQueue> queues = new ArrayList<>(set);
            for (Map.Entry<String, AllocateMessageQueueStrategy> each : strategies.entrySet()) {
                StringBuilder out = new StringBuilder(each.getKey() + "|" + String.join(",", cids) + "|" + told + "|");
                for (String cid : cids) {
                    StringJoiner mine = new StringJoiner(" ");
                    for (MessageQueue q : each.getValue().allocate("G", cid, queues, cids)) mine.add(String.valueOf(queues.indexOf(q)));
                    out.append(cid.equals(cids.get(0)) ? "" : ";").append(mine);
                }
                System.out.println(out);
            }
        }
    }
}
