package razzo;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;

/**
 * The official Java client under load, one step for each line on the standard input, one JSON line for each step.
 *
 * <pre>
 * --mode produce   "SECONDS" sends for so long, asynchronously, --in-flight messages under way
 * --mode drain     "COUNT"   receives and acknowledges so many, --receivers threads, batches of 32
 * </pre>
 */
public final class BenchClient {
    private static final int BATCH = 32;
    private static final int ACKS_UNDER_WAY_MAX = 256;
    private static final Duration INVISIBLE = Duration.ofMinutes(5);
    private static final Duration AWAIT = Duration.ofSeconds(1);
    private static final int EMPTY_RECEIVES_MAX = 10;

    private final Map<String, String> options;
    private final ClientServiceProvider provider = ClientServiceProvider.loadService();
    private final ClientConfiguration configuration;
    private final AtomicReference<Throwable> failure = new AtomicReference<>();

    private BenchClient(Map<String, String> options) {
        this.options = options;
        this.configuration = ClientConfiguration.newBuilder()
            .setEndpoints(options.get("endpoint"))
            .enableSsl(false)
            .setRequestTimeout(Duration.ofSeconds(10))
            .build();
    }

    private interface Step {
        long run(double argument) throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = new HashMap<>();
        for (int i = 0; i + 1 < arguments.length; i += 2) {
            options.put(arguments[i].substring(2), arguments[i + 1]);
        }
        BenchClient client = new BenchClient(options);
        int code = 0;
        try {
            client.serve(options.get("mode").equals("drain") ? client.drain() : client.produce());
        } catch (Throwable thrown) {
            thrown.printStackTrace();
            code = 1;
        }
        Runtime.getRuntime().halt(code);
    }

    private void serve(Step step) throws Exception {
        System.out.println("{\"event\":\"ready\"}");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            long start = System.nanoTime();
            long messages = step.run(Double.parseDouble(line));
            double seconds = (System.nanoTime() - start) / 1e9;
            if (failure.get() != null) {
                throw new IllegalStateException(failure.get());
            }
            System.out.println("{\"event\":\"done\",\"messages\":" + messages + ",\"seconds\":" + seconds + "}");
        }
    }

    private Step produce() throws Exception {
        String topic = options.get("topic");
        int inFlight = Integer.parseInt(options.get("in-flight"));
        byte[] body = new byte[Integer.parseInt(options.get("body"))];
        Producer producer = provider.newProducerBuilder().setClientConfiguration(configuration).setTopics(topic).build();
        return seconds -> {
            Semaphore room = new Semaphore(inFlight);
            long sent = 0;
            long end = System.nanoTime() + (long) (seconds * 1e9);
            while (System.nanoTime() < end && failure.get() == null) {
                Message message = provider.newMessageBuilder()
                    .setTopic(topic).setTag("bench").setKeys("order-1001").addProperty("tenant", "bench").setBody(body).build();
                room.acquire();
                producer.sendAsync(message).whenComplete((receipt, thrown) -> {
                    if (thrown != null) {
                        failure.compareAndSet(null, thrown);
                    }
                    room.release();
                });
                sent++;
            }
            room.acquire(inFlight);
            return sent;
        };
    }

    private Step drain() throws Exception {
        String topic = options.get("topic");
        int receivers = Integer.parseInt(options.get("receivers"));
        SimpleConsumer consumer = provider.newSimpleConsumerBuilder()
            .setClientConfiguration(configuration)
            .setConsumerGroup(options.get("group"))
            .setAwaitDuration(AWAIT)
            .setSubscriptionExpressions(Collections.singletonMap(topic, FilterExpression.SUB_ALL))
            .build();
        // The first receive fixes where a new group starts; the backlog is made after it.
        if (!consumer.receive(BATCH, INVISIBLE).isEmpty()) {
            throw new IllegalStateException("the topic was not empty");
        }
        return count -> {
            Semaphore room = new Semaphore(ACKS_UNDER_WAY_MAX);
            AtomicLong received = new AtomicLong();
            AtomicLong acknowledged = new AtomicLong();
            Thread[] threads = new Thread[receivers];
            for (int i = 0; i < receivers; i++) {
                threads[i] = new Thread(() -> receive(consumer, room, received, acknowledged, (long) count));
                threads[i].start();
            }
            for (Thread thread : threads) {
                thread.join();
            }
            room.acquire(ACKS_UNDER_WAY_MAX);
            if (received.get() != (long) count && failure.get() == null) {
                throw new IllegalStateException("received " + received.get() + " of " + (long) count);
            }
            return acknowledged.get();
        };
    }

    private void receive(SimpleConsumer consumer, Semaphore room, AtomicLong received, AtomicLong acknowledged, long count) {
        int empty = 0;
        try {
            while (received.get() < count && empty < EMPTY_RECEIVES_MAX && failure.get() == null) {
                var messages = consumer.receive(BATCH, INVISIBLE);
                empty = messages.isEmpty() ? empty + 1 : 0;
                received.addAndGet(messages.size());
                for (MessageView message : messages) {
                    room.acquire();
                    consumer.ackAsync(message).whenComplete((nothing, thrown) -> {
                        if (thrown != null) {
                            failure.compareAndSet(null, thrown);
                        } else {
                            acknowledged.incrementAndGet();
                        }
                        room.release();
                    });
                }
            }
        } catch (Throwable thrown) {
            failure.compareAndSet(null, thrown);
        }
    }
}
