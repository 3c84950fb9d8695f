import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/**
 * RocketMQ's own client with its default settings, under load. It prints counts and latencies only.
 *
 * <pre>
 *   load NAMESERVERS topic=T [threads=1] [outstanding=0] [bytes=1024] [warm=0] [seconds=0] [count=0]
 *   drain NAMESERVERS topic=T group=G count=N [rounds=1] [seconds=60]
 * </pre>
 *
 * `load` sends until the seconds are over, or until so many sends are acknowledged; `outstanding`
 * makes it send asynchronously. Only what is answered after the `warm` seconds is measured. `drain`
 * lets a push consumer get a backlog, in each round as a new group.
 */
final class LoadScenario {
    private static final int LATENCIES_MAX = 2_000_000;
    private static final long FIRST_SEND_MS = 30_000;

    private final DefaultMQProducer producer = new DefaultMQProducer("load_producer");
    private final String topic;
    private final byte[] body;
    private final long measuredFromNs;
    private final long untilNs;
    private final long wanted;
    private final long[] latenciesNs = new long[LATENCIES_MAX];
    private final AtomicInteger measured = new AtomicInteger();
    private final AtomicLong acknowledged = new AtomicLong();
    private final AtomicLong failed = new AtomicLong();
    private final AtomicReference<String> failure = new AtomicReference<>("");

    private LoadScenario(String nameServers, Map<String, String> options) throws Exception {
        topic = options.get("topic");
        body = new byte[number(options, "bytes", 1024)];
        wanted = number(options, "count", 0);
        producer.setNamesrvAddr(nameServers);
        producer.setInstanceName("load" + System.nanoTime());
        producer.start();
        producer.send(new Message(topic, body), FIRST_SEND_MS); // it creates the topic
        measuredFromNs = System.nanoTime() + TimeUnit.SECONDS.toNanos(number(options, "warm", 0));
        long seconds = number(options, "seconds", 0);
        untilNs = wanted > 0 ? Long.MAX_VALUE : measuredFromNs + TimeUnit.SECONDS.toNanos(seconds);
    }

    static void load(String nameServers, Map<String, String> options) throws Exception {
        LoadScenario scenario = new LoadScenario(nameServers, options);
        int outstanding = number(options, "outstanding", 0);
        if (outstanding > 0) {
            scenario.sendAsync(outstanding);
        } else {
            scenario.sendInThreads(number(options, "threads", 1));
        }
        scenario.tell();
        scenario.producer.shutdown();
    }

    private static int number(Map<String, String> options, String name, int value) {
        return Integer.parseInt(options.getOrDefault(name, Integer.toString(value)));
    }

    private boolean goesOn() {
        return System.nanoTime() < untilNs && (wanted == 0 || acknowledged.get() < wanted);
    }

    private void sendInThreads(int count) throws InterruptedException {
        Thread[] threads = new Thread[count];
        for (int n = 0; n < count; n++) {
            threads[n] = new Thread(() -> {
                while (goesOn()) {
                    long begunNs = System.nanoTime();
                    try {
                        answered(begunNs, producer.send(new Message(topic, body)));
                    } catch (Exception error) {
                        failed(error);
                    }
                }
            });
            threads[n].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
    }

    private void sendAsync(int outstanding) throws Exception {
        Semaphore places = new Semaphore(outstanding);
        while (goesOn()) {
            places.acquire();
            long begunNs = System.nanoTime();
            producer.send(new Message(topic, body), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    answered(begunNs, result);
                    places.release();
                }

                @Override
                public void onException(Throwable error) {
                    failed(error);
                    places.release();
                }
            });
        }
        if (!places.tryAcquire(outstanding, 60, TimeUnit.SECONDS)) {
            throw new IllegalStateException("some sends were never answered");
        }
    }

    private void answered(long begunNs, SendResult result) {
        long endedNs = System.nanoTime();
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            failed(new IllegalStateException(result.getSendStatus().toString()));
            return;
        }
        acknowledged.incrementAndGet();
        if (endedNs >= measuredFromNs && endedNs < untilNs) {
            latenciesNs[measured.getAndIncrement() % LATENCIES_MAX] = endedNs - begunNs;
        }
    }

    private void failed(Throwable error) {
        failed.incrementAndGet();
        failure.compareAndSet("", String.valueOf(error.getMessage()));
    }

    private void tell() {
        int count = Math.min(measured.get(), LATENCIES_MAX);
        Arrays.sort(latenciesNs, 0, count);
        RocketmqScenario.print("load", "acknowledged", acknowledged.get(),
            "measured", measured.get(), "failed", failed.get(), "failure", failure.get(),
            "p50_us", count == 0 ? 0 : latenciesNs[count / 2] / 1000,
            "p99_us", count == 0 ? 0 : latenciesNs[(int) (count * 0.99)] / 1000);
    }

    static void drain(String nameServers, Map<String, String> options) throws Exception {
        for (int round = 0; round < number(options, "rounds", 1); round++) {
            drainAs(options.get("group") + round, nameServers, options);
        }
    }

    private static void drainAs(String group, String nameServers, Map<String, String> options)
            throws Exception {
        CountDownLatch first = new CountDownLatch(1);
        CountDownLatch missing = new CountDownLatch(number(options, "count", 1));
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameServers);
        consumer.setInstanceName(group + System.nanoTime());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(options.get("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            first.countDown();
            messages.forEach(message -> missing.countDown());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        int seconds = number(options, "seconds", 60);
        boolean begun = first.await(seconds, TimeUnit.SECONDS);
        long begunNs = System.nanoTime();
        if (!begun || !missing.await(seconds, TimeUnit.SECONDS)) {
            throw new IllegalStateException(missing.getCount() + " messages never came");
        }
        RocketmqScenario.print("drained", "count", number(options, "count", 1),
            "took_us", (System.nanoTime() - begunNs) / 1000);
        consumer.shutdown();
    }
}
