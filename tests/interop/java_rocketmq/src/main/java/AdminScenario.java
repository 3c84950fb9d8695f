import java.lang.reflect.Method;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * RocketMQ's own administration client: creates, shows, changes and deletes one topic and one
 * consumer group, and shows a message by its id.
 *
 * <pre>
 *   admin NAMESERVERS topic=T group=G broker=NAME message=ID messageTopic=T2
 * </pre>
 */
final class AdminScenario {
    private static final long TIMEOUT_MS = 5000;

    private AdminScenario() {
    }

    static void play(String nameServers, Map<String, String> options) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(nameServers);
        admin.setInstanceName("scenario" + System.nanoTime());
        admin.start();
        try {
            var info = admin.examineBrokerClusterInfo().getBrokerAddrTable();
            String master = info.get(options.get("broker")).getBrokerAddrs().get(0L);
            topic(admin, master, options.get("topic"));
            group(admin, master, options.get("group"));
            var runtime = admin.fetchBrokerRuntimeStats(master).getTable();
            RocketmqScenario.print("runtime", "version", runtime.get("brokerVersionDesc"));
            var shown = admin.viewMessage(options.get("messageTopic"), options.get("message"));
            RocketmqScenario.print("message", "key", shown.getKeys());
            delete(admin, master, nameServers, options);
        } finally {
            admin.shutdown();
        }
    }

    private static void topic(DefaultMQAdminExt admin, String master, String topic)
            throws Exception {
        TopicConfig config = new TopicConfig(topic, 3, 3, 6);
        admin.createAndUpdateTopicConfig(master, config);
        show(admin, master, topic);
        config.setPerm(4);
        config.setWriteQueueNums(5);
        config.setReadQueueNums(5);
        admin.createAndUpdateTopicConfig(master, config);
        show(admin, master, topic);
    }

    private static void show(DefaultMQAdminExt admin, String master, String topic)
            throws Exception {
        TopicConfig one = admin.examineTopicConfig(master, topic);
        TopicConfig same = admin.getAllTopicConfig(master, TIMEOUT_MS).getTopicConfigTable().get(topic);
        RocketmqScenario.print("topic", "queues", one.getReadQueueNums(), "perm", one.getPerm(),
            "inTable", same.getReadQueueNums(), "inRoute", routed(admin, one),
            "listed", admin.fetchAllTopicList().getTopicList().contains(topic));
    }

    // Any member answers as a name server, and may learn of a change a little later.
    private static int routed(DefaultMQAdminExt admin, TopicConfig config) throws Exception {
        long endNs = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(TIMEOUT_MS);
        while (true) {
            try {
                int queues = admin.examineTopicRouteInfo(config.getTopicName())
                    .getQueueDatas().get(0).getWriteQueueNums();
                if (queues == config.getWriteQueueNums() || System.nanoTime() > endNs) {
                    return queues;
                }
            } catch (MQClientException error) {
                if (System.nanoTime() > endNs) {
                    throw error;
                }
            }
            Thread.sleep(10);
        }
    }

    private static void group(DefaultMQAdminExt admin, String master, String group)
            throws Exception {
        for (Method method : DefaultMQAdminExt.class.getMethods()) {
            if (method.getName().equals("createAndUpdateSubscriptionGroupConfig")) {
                // The class of the settings is in another package since 5.0.
                Class<?> kind = method.getParameterTypes()[1];
                Object config = kind.getDeclaredConstructor().newInstance();
                kind.getMethod("setGroupName", String.class).invoke(config, group);
                kind.getMethod("setRetryMaxTimes", int.class).invoke(config, 3);
                method.invoke(admin, master, config);
            }
        }
        var one = admin.examineSubscriptionGroupConfig(master, group);
        var table = admin.getAllSubscriptionGroup(master, TIMEOUT_MS).getSubscriptionGroupTable();
        RocketmqScenario.print("group", "times", one.getRetryMaxTimes(), "inTable",
            table.get(group).getRetryMaxTimes());
    }

    private static void delete(
            DefaultMQAdminExt admin, String master, String nameServers, Map<String, String> options)
            throws Exception {
        String topic = options.get("topic");
        String group = options.get("group");
        admin.deleteTopicInBroker(Set.of(master), topic);
        admin.deleteTopicInNameServer(Set.of(nameServers.split(";")), "DefaultCluster", topic);
        admin.deleteSubscriptionGroup(master, group, true);
        var topics = admin.getAllTopicConfig(master, TIMEOUT_MS).getTopicConfigTable();
        var groups = admin.getAllSubscriptionGroup(master, TIMEOUT_MS).getSubscriptionGroupTable();
        RocketmqScenario.print("deleted", "topic", topics.containsKey(topic), "group",
            groups.containsKey(group));
    }
}
