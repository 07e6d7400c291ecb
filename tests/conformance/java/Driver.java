import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;

/**
 * Tries features of the stock Java client against a cluster, several at a time, and prints as JSON
 * lines what happened. It judges nothing.
 *
 * <p>Arguments: name servers, the client's name, how many at a time, features.
 */
public final class Driver {
    /** What a scenario does; an exception that leaves it is an event, too. */
    interface Steps {
        void run(Scenario scenario) throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, Steps> known = new LinkedHashMap<>();
        Sends.register(known);
        PushConsumers.register(known);
        PullConsumers.register(known);
        Redeliveries.register(known);
        PopConsumers.register(known);
        Extras.register(known);
        Ours.register(known);
        warmUp(arguments[0], arguments[1]);
        ExecutorService pool = Executors.newFixedThreadPool(Integer.parseInt(arguments[2]));
        for (int i = 3; i < arguments.length; i++) {
            String feature = arguments[i];
            pool.execute(() -> run(known.get(feature), arguments[0], arguments[1], feature));
        }
        pool.shutdown();
        pool.awaitTermination(10, TimeUnit.MINUTES);
        System.exit(0); // The stock client leaves threads behind that are no daemons.
    }

    /** Load the client's classes at leisure: a cold JVM on a busy machine misses its own timeouts. */
    private static void warmUp(String namesrv, String client) throws Exception {
        try (Scenario scenario = new Scenario(namesrv, client, "warm_up")) {
            DefaultMQProducer producer = scenario.producer();
            Scenario.await(() -> producer.send(scenario.message("warm")) != null);
        }
    }

    private static void run(Steps steps, String namesrv, String client, String feature) {
        Scenario scenario = new Scenario(namesrv, client, feature);
        try (scenario) {
            if (steps == null) {
                scenario.say("unknown");
            } else {
                steps.run(scenario);
                scenario.say("done");
            }
        } catch (Throwable error) {
            scenario.say("error", "error", error.toString());
        }
    }
}
