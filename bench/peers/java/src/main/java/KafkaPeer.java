import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The client of Kafka in `python -m bench.peers`: java KafkaPeer HOST:PORT,...
 *
 * <p>It reads requests from stdin and answers each on stdout, one JSON object a line; see bench/peers/client.py. A log is a
 * topic of one partition with three replicas, two of which must acknowledge. It exits when its stdin ends.
 */
public final class KafkaPeer {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int REPLICAS = 3;
    private static final int BATCH_BYTES_MIN = 16 << 10; // the producer's default
    private static final int BATCH_BYTES_MAX = 128 << 10;
    private static final int WAITING_MAX = 20_000;

    private final String servers;
    private final Admin admin;
    private Pace pace;

    private KafkaPeer(String servers) {
        this.servers = servers;
        this.admin = Admin.create(properties());
    }

    public static void main(String[] arguments) throws Exception {
        KafkaPeer peer = new KafkaPeer(arguments[0]);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                peer.answer(JSON.readTree(line), answer);
            } catch (Exception error) {
                answer = JSON.createObjectNode().put("error", String.valueOf(error));
            }
            System.out.println(JSON.writeValueAsString(answer));
            System.out.flush();
        }
        System.exit(0);
    }

    private void answer(JsonNode request, ObjectNode answer) throws Exception {
        String log = request.path("log").asText();
        switch (request.get("do").asText()) {
            case "create" -> create(log);
            case "leader" -> leader(log, answer);
            case "append" -> append(log, request, answer);
            case "fill" -> fill(log, request);
            case "read" -> answer.put("seconds", read(log, request));
            case "pace" -> pace = new Pace(log, request);
            case "acknowledgements" -> pace.take(answer);
            case "rest" -> pace.stop();
            default -> throw new IllegalArgumentException("unknown request " + request);
        }
    }

    private Properties properties() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", servers);
        return properties;
    }

    private KafkaProducer<byte[], byte[]> producer(int lingerMs, int batchBytes) {
        Properties properties = properties();
        properties.put("acks", "all");
        properties.put("linger.ms", lingerMs);
        properties.put("batch.size", batchBytes);
        return new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private void create(String log) throws Exception {
        NewTopic topic = new NewTopic(log, 1, (short) REPLICAS);
        for (int attempt = 0; ; attempt++) {
            try {
                admin.createTopics(List.of(topic)).all().get(15, TimeUnit.SECONDS);
                return;
            } catch (Exception error) {
                if (error.getCause() instanceof TopicExistsException) return; // an earlier attempt timed out
                if (attempt == 60) throw error;
                Thread.sleep(500); // the brokers are still registering
            }
        }
    }

    private void leader(String log, ObjectNode answer) {
        try {
            var topics = admin.describeTopics(List.of(log)).allTopicNames().get(10, TimeUnit.SECONDS);
            var partition = topics.get(log).partitions().get(0);
            boolean known = partition.leader() != null && !partition.leader().isEmpty();
            answer.put("leader", known ? "n" + (partition.leader().id() - 1) : "");
            answer.put("whole", known && partition.isr().size() == REPLICAS);
        } catch (Exception error) { // members are away: ask again
            answer.put("leader", "").put("whole", false);
        }
    }

    /** One in flight does not linger. More do, as by default, in batches of an eighth of what is in flight. */
    private void append(String log, JsonNode request, ObjectNode answer) throws Exception {
        int inFlight = request.get("in_flight").asInt();
        byte[] body = body(request);
        int batchBytes = Math.min(Math.max(inFlight * body.length / 8, BATCH_BYTES_MIN), BATCH_BYTES_MAX);
        try (var producer = producer(inFlight == 1 ? 0 : 5, batchBytes)) {
            producer.partitionsFor(log);
            long begin = System.nanoTime() + nanos(request, "warm_up_s");
            long end = begin + nanos(request, "seconds");
            Latencies latencies = new Latencies();
            AtomicInteger failed = new AtomicInteger();
            Semaphore slots = new Semaphore(inFlight);
            ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(log, body);
            while (true) {
                slots.acquire();
                long at = System.nanoTime();
                if (at >= end) break;
                producer.send(record, (metadata, error) -> {
                    long now = System.nanoTime();
                    if (error != null) failed.incrementAndGet();
                    else if (now >= begin && now < end) latencies.add(now - at);
                    slots.release();
                });
            }
            producer.flush();
            latencies.summary(answer).put("failed", failed.get());
        }
    }

    private void fill(String log, JsonNode request) throws Exception {
        AtomicReference<Exception> failure = new AtomicReference<>();
        ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(log, body(request));
        try (var producer = producer(5, BATCH_BYTES_MAX)) {
            int entries = request.get("entries").asInt();
            for (int n = 0; n < entries && failure.get() == null; n++) {
                producer.send(record, (metadata, error) -> {
                    if (error != null) failure.set(error);
                });
            }
            producer.flush();
        }
        if (failure.get() != null) throw failure.get();
    }

    /** The consumer is connected, and the beginning of the log known, before the clock starts. */
    private double read(String log, JsonNode request) {
        int entries = request.get("entries").asInt();
        int bodyBytes = request.get("body_bytes").asInt();
        Properties properties = properties();
        properties.put("fetch.min.bytes", 1 << 20);
        properties.put("fetch.max.wait.ms", 20); // or the end of the log would wait for 500 ms
        properties.put("max.partition.fetch.bytes", 8 << 20);
        properties.put("max.poll.records", 10_000);
        TopicPartition partition = new TopicPartition(log, 0);
        try (var consumer = new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            consumer.position(partition);
            long began = System.nanoTime();
            int n = 0;
            while (n < entries) {
                ConsumerRecords<byte[], byte[]> some = consumer.poll(Duration.ofSeconds(20));
                if (some.isEmpty()) throw new IllegalStateException("no records after " + n);
                for (ConsumerRecord<byte[], byte[]> record : some) {
                    if (record.value().length != bodyBytes || record.offset() != n)
                        throw new IllegalStateException("a wrong record at " + record.offset());
                    n++;
                }
            }
            return (System.nanoTime() - began) / 1e9;
        }
    }

    private static byte[] body(JsonNode request) {
        byte[] body = new byte[request.get("body_bytes").asInt()];
        new Random().nextBytes(body);
        return body;
    }

    private static long nanos(JsonNode request, String name) {
        return (long) (request.get(name).asDouble() * 1e9);
    }

    /** Latencies in nanoseconds; one thread of the producer adds them. */
    private static final class Latencies {
        private long[] each = new long[1 << 20];
        private int size;

        void add(long latency) {
            if (size == each.length) each = Arrays.copyOf(each, size * 2);
            each[size++] = latency;
        }

        ObjectNode summary(ObjectNode answer) {
            Arrays.sort(each, 0, size);
            answer.put("acknowledged", size);
            answer.put("p50_ms", size == 0 ? null : each[size / 2] / 1e6);
            return answer.put("p99_ms", size == 0 ? null : each[(int) (size * 0.99)] / 1e6);
        }
    }

    /** Begins appends at a steady rate, without waiting for earlier ones. */
    private final class Pace {
        private final KafkaProducer<byte[], byte[]> producer = producer(0, BATCH_BYTES_MIN);
        private final Semaphore slots = new Semaphore(WAITING_MAX);
        private final Thread thread;
        private List<long[]> acknowledged = new ArrayList<>();
        private int failed;
        private volatile boolean stopped;

        Pace(String log, JsonNode request) {
            int perSecond = request.get("per_second").asInt();
            ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(log, body(request));
            thread = new Thread(() -> run(record, perSecond));
            thread.setDaemon(true);
            thread.start();
        }

        private void run(ProducerRecord<byte[], byte[]> record, int perSecond) {
            long began = System.nanoTime();
            long begun = 0;
            while (!stopped) {
                long due = (long) ((System.nanoTime() - began) / 1e9 * perSecond);
                for (; begun < due; begun++) {
                    if (!slots.tryAcquire()) continue;
                    long at = unixNanos();
                    producer.send(record, (metadata, error) -> note(at, error));
                }
                try {
                    Thread.sleep(5);
                } catch (InterruptedException error) {
                    return;
                }
            }
        }

        private synchronized void note(long begun, Exception error) {
            slots.release();
            if (error != null) failed++;
            else acknowledged.add(new long[] {begun, unixNanos()});
        }

        /** Returns what was acknowledged since the last call: [begun, acknowledged] in Unix ns. */
        synchronized void take(ObjectNode answer) {
            answer.set("acknowledgements", JSON.valueToTree(acknowledged));
            answer.put("failed", failed);
            acknowledged = new ArrayList<>();
        }

        void stop() throws InterruptedException {
            stopped = true;
            thread.join();
            producer.close(Duration.ofSeconds(10));
        }

        private static long unixNanos() {
            Instant now = Instant.now();
            return now.getEpochSecond() * 1_000_000_000L + now.getNano();
        }
    }
}
