import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.hook.SendMessageContext;
import org.apache.rocketmq.client.hook.SendMessageHook;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * RocketMQ's own client: plays one scenario and prints one JSON object a line for each thing that
 * happened. Nothing is judged here.
 *
 * <pre>
 *   send NAMESERVERS topic=T count=N [mode=sync|async|oneway|batch] [first=0] [bytes=100] [tag=]
 *        [queue=-1] [pause=0] [retries=2] [timeout=3000] [outstanding=1000] [delay=0]
 *   pull NAMESERVERS topic=T group=G count=N [from=begin|committed] [tags=*] [commit=no] [seconds=60]
 *        [subscribe=no]
 *   push NAMESERVERS topic=T group=G [tags=*] [model=clustering|broadcasting] [orderly=no]
 *        [failing=0] [reconsumes=16] [level=0] [pause=0]
 *   admin (see AdminScenario)
 *   load, drain (see LoadScenario)
 * </pre>
 *
 * `push` consumes until its standard input ends. It refuses each message until it was delivered
 * more than `failing` times; `level` is the delay level of the next delivery.
 *
 * The body of message n is its key, "k" and n, padded with dots to the given number of bytes.
 *
 * A send ends with "sent" or "failed". Before that, each try of it that failed is a "tried" with the
 * code of the answer, -1 without one.
 */
public final class RocketmqScenario {
    private static final PrintStream EVENTS = System.out;
    private static Map<String, String> options = new LinkedHashMap<>();

    public static void main(String[] arguments) throws Exception {
        System.setOut(System.err); // for what the libraries print
        for (String argument : List.of(arguments).subList(2, arguments.length)) {
            options.put(argument.split("=", 2)[0], argument.split("=", 2)[1]);
        }
        try {
            switch (arguments[0]) {
                case "send":
                    send(arguments[1]);
                    break;
                case "push":
                    push(arguments[1]);
                    break;
                case "admin":
                    AdminScenario.play(arguments[1], options);
                    break;
                case "load":
                    LoadScenario.load(arguments[1], options);
                    break;
                case "drain":
                    LoadScenario.drain(arguments[1], options);
                    break;
                default:
                    pull(arguments[1]);
            }
            print("end");
        } catch (Exception error) {
            print("error", "text", error.toString());
        }
        EVENTS.flush();
        System.exit(0);
    }

    private static String option(String name, String value) {
        return options.getOrDefault(name, value);
    }

    private static int number(String name, int value) {
        return Integer.parseInt(option(name, Integer.toString(value)));
    }

    private static Message message(int n) {
        String key = "k" + n;
        int bytes = Math.max(number("bytes", 100), key.length());
        String body = key + ".".repeat(bytes - key.length());
        Message message = new Message(
            options.get("topic"), option("tag", ""), key, body.getBytes(StandardCharsets.UTF_8));
        if (number("delay", 0) > 0) {
            message.setDelayTimeLevel(number("delay", 0));
        }
        return message;
    }

    private static void send(String nameServers) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(option("group", "scenario_producer"));
        producer.setNamesrvAddr(nameServers);
        producer.setPollNameServerInterval(number("poll", 1000));
        producer.setRetryTimesWhenSendFailed(number("retries", 2));
        producer.setRetryTimesWhenSendAsyncFailed(number("retries", 2));
        producer.setSendMsgTimeout(number("timeout", 3000));
        producer.setInstanceName("scenario" + System.nanoTime());
        producer.getDefaultMQProducerImpl().registerSendMessageHook(new FailedTries());
        producer.start();
        int first = number("first", 0);
        int end = first + number("count", 1);
        print("started");
        switch (option("mode", "sync")) {
            case "async":
                sendAsync(producer, first, end);
                break;
            case "batch":
                sendBatch(producer, first, end);
                break;
            default:
                sendOneByOne(producer, first, end);
        }
        producer.shutdown();
    }

    private static final class FailedTries implements SendMessageHook {
        @Override
        public String hookName() {
            return "failed tries";
        }

        @Override
        public void sendMessageBefore(SendMessageContext context) {
        }

        @Override
        public void sendMessageAfter(SendMessageContext context) {
            Exception error = context.getException();
            if (error != null) {
                boolean isAnswer = error instanceof MQBrokerException;
                print("tried", "key", context.getMessage().getKeys(),
                    "code", isAnswer ? ((MQBrokerException) error).getResponseCode() : -1,
                    "text", String.valueOf(error.getMessage()));
            }
        }
    }

    private static void sendOneByOne(DefaultMQProducer producer, int first, int end)
            throws InterruptedException {
        boolean oneway = option("mode", "sync").equals("oneway");
        for (int n = first; n < end; n++) {
            try {
                if (oneway) {
                    producer.sendOneway(message(n));
                } else {
                    sent("k" + n, producer.send(message(n)));
                }
            } catch (Exception error) {
                print("failed", "key", "k" + n, "text", String.valueOf(error.getMessage()));
            }
            Thread.sleep(number("pause", 0));
        }
    }

    private static void sendAsync(DefaultMQProducer producer, int first, int end)
            throws Exception {
        Semaphore places = new Semaphore(number("outstanding", 1000));
        CountDownLatch answered = new CountDownLatch(end - first);
        for (int n = first; n < end; n++) {
            String key = "k" + n;
            places.acquire();
            producer.send(message(n), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    sent(key, result);
                    done();
                }

                @Override
                public void onException(Throwable error) {
                    print("failed", "key", key, "text", String.valueOf(error.getMessage()));
                    done();
                }

                private void done() {
                    places.release();
                    answered.countDown();
                }
            });
        }
        if (!answered.await(60, TimeUnit.SECONDS)) {
            throw new IllegalStateException(answered.getCount() + " sends were never answered");
        }
    }

    private static void sendBatch(DefaultMQProducer producer, int first, int end)
            throws Exception {
        int size = number("size", 10);
        for (int n = first; n < end; n += size) {
            List<Message> batch = new ArrayList<>();
            for (int k = n; k < Math.min(end, n + size); k++) {
                batch.add(message(k));
            }
            try {
                sent("k" + n, producer.send(batch));
            } catch (Exception error) {
                print("failed", "key", "k" + n, "text", String.valueOf(error.getMessage()));
            }
        }
    }

    private static void sent(String key, SendResult result) {
        print("sent", "key", key, "status", result.getSendStatus(),
            "queue", result.getMessageQueue().getQueueId(), "offset", result.getQueueOffset(),
            "id", result.getMsgId(), "offsetId", result.getOffsetMsgId());
    }

    private static void pull(String nameServers) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(options.get("group"));
        consumer.setNamesrvAddr(nameServers);
        consumer.setPollNameServerInterval(number("poll", 1000));
        consumer.setAutoCommit(false);
        if (option("from", "begin").equals("begin")) {
            // Not by seekToBegin: assign pulls at once, and a seek interrupts these pulls. The client
            // then closes its connection, and may drop messages that a cancelled pull has fetched.
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        }
        consumer.setInstanceName("scenario" + System.nanoTime());
        if (!option("tags", "*").equals("*")) {
            consumer.setSubExpressionForAssign(options.get("topic"), options.get("tags"));
        }
        boolean subscribes = option("subscribe", "no").equals("yes");
        if (subscribes) {
            consumer.subscribe(options.get("topic"), option("tags", "*"));
        }
        consumer.start();
        Collection<MessageQueue> queues = consumer.fetchMessageQueues(options.get("topic"));
        print("queues", "count", queues.size());
        if (!subscribes) {
            consumer.assign(queues);
        }
        int missing = number("count", 1);
        long endNs = System.nanoTime() + TimeUnit.SECONDS.toNanos(number("seconds", 60));
        while (missing > 0 && System.nanoTime() < endNs) {
            for (MessageExt message : consumer.poll(500)) {
                received(message);
                missing--;
            }
        }
        if (option("commit", "no").equals("yes")) {
            consumer.commitSync();
            Thread.sleep(1000); // the client commits through a queue of its own
            for (MessageQueue queue : queues) {
                print("committed", "queue", queue.getQueueId(), "offset", consumer.committed(queue));
            }
        }
        consumer.shutdown();
    }

    private static void push(String nameServers) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(options.get("group"));
        consumer.setNamesrvAddr(nameServers);
        consumer.setPollNameServerInterval(number("poll", 1000));
        consumer.setInstanceName("scenario" + System.nanoTime());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setMaxReconsumeTimes(number("reconsumes", 16));
        consumer.setSuspendCurrentQueueTimeMillis(100);
        if (option("model", "clustering").equals("broadcasting")) {
            consumer.setMessageModel(broadcasting(consumer));
        }
        consumer.subscribe(options.get("topic"), option("tags", "*"));
        if (option("orderly", "no").equals("yes")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) ->
                consumed(messages)
                    ? ConsumeOrderlyStatus.SUCCESS
                    : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                context.setDelayLevelWhenNextConsume(number("level", 0));
                return consumed(messages)
                    ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS
                    : ConsumeConcurrentlyStatus.RECONSUME_LATER;
            });
        }
        consumer.start();
        print("started");
        while (System.in.read() >= 0) {
            continue;
        }
        consumer.shutdown();
    }

    // The class of the model is in another package since 5.0.
    @SuppressWarnings("unchecked")
    private static <T> T broadcasting(DefaultMQPushConsumer consumer) {
        Class<?> kind = consumer.getMessageModel().getClass();
        return (T) kind.getEnumConstants()[0];
    }

    private static boolean consumed(List<MessageExt> messages) {
        boolean isDone = true;
        for (MessageExt message : messages) {
            received(message);
            isDone &= message.getReconsumeTimes() >= number("failing", 0);
        }
        try {
            Thread.sleep(number("pause", 0));
        } catch (InterruptedException error) {
            return false;
        }
        return isDone;
    }

    private static void received(MessageExt message) {
        print("received", "key", message.getKeys(), "queue", message.getQueueId(),
            "offset", message.getQueueOffset(), "tags", message.getTags(),
            "crc", message.getBodyCRC(), "offsetId", message.getMsgId(),
            "topic", message.getTopic(), "times", message.getReconsumeTimes(),
            "stored", message.getStoreTimestamp(), "born", message.getBornTimestamp(),
            "body", HexFormat.of().formatHex(message.getBody()));
    }

    static synchronized void print(String event, Object... pairs) {
        StringBuilder line = new StringBuilder("{\"event\":\"" + event + "\"");
        for (int at = 0; at < pairs.length; at += 2) {
            line.append(",\"").append(pairs[at]).append("\":");
            Object value = pairs[at + 1];
            line.append(value instanceof Number ? value : quoted(String.valueOf(value)));
        }
        EVENTS.println(line.append("}"));
    }

    private static String quoted(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char letter : text.toCharArray()) {
            if (letter < ' ' || letter == '"' || letter == '\\') {
                quoted.append(String.format("\\u%04x", (int) letter));
            } else {
                quoted.append(letter);
            }
        }
        return quoted.append('"').toString();
    }
}
