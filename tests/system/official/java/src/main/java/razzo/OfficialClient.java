package razzo;

import com.google.gson.Gson;
import com.google.gson.JsonObject;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.java.impl.producer.SendReceiptImpl;
import org.apache.rocketmq.client.java.message.MessageViewImpl;

/** The official Java client as a JSON-lines program; ../README.md says what it takes and writes. */
public final class OfficialClient {
    private static final String WARM_UP_PROPERTY = "warm-up";
    private static final Duration INVISIBLE = Duration.ofSeconds(60);
    private static final Duration AWAIT = Duration.ofSeconds(5);
    private static final Duration CLOSE_LIMIT = Duration.ofSeconds(3);

    private static final Gson GSON = new Gson();
    private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);

    private static volatile boolean stopping;

    private final Map<String, String> options;
    private final ClientServiceProvider provider = ClientServiceProvider.loadService();
    private final ClientConfiguration configuration;
    private final String topic;

    private OfficialClient(Map<String, String> options) {
        this.options = options;
        this.topic = options.get("topic");
        var builder = ClientConfiguration.newBuilder().setEndpoints(options.get("endpoint"));
        // The client's default is TLS; only the other choice is said.
        if (options.get("tls").equals("false")) {
            builder.enableSsl(false);
        }
        this.configuration = builder.build();
    }

    public static void main(String[] arguments) {
        Map<String, String> options = new HashMap<>();
        for (int i = 0; i + 1 < arguments.length; i += 2) {
            options.put(arguments[i].substring(2), arguments[i + 1]);
        }
        try {
            OfficialClient client = new OfficialClient(options);
            switch (options.get("mode")) {
                case "send" -> client.send();
                case "simple" -> client.simple();
                case "push" -> client.push();
                default -> throw new IllegalArgumentException("unknown mode " + options.get("mode"));
            }
        } catch (Throwable failure) {
            if (stopping) {
                return; // a receive that the close cut off; untilInputEnds has the last word
            }
            write(Map.of("event", "error", "what", failure.toString()));
            Runtime.getRuntime().halt(1);
        }
    }

    private void send() throws Exception {
        byte[] blob = Files.readAllBytes(Path.of(options.get("blob")));
        Producer producer = provider.newProducerBuilder()
            .setClientConfiguration(configuration)
            .setTopics(topic)
            .build();
        write(Map.of("event", "started"));
        for (String text : Files.readAllLines(Path.of(options.get("manifest")))) {
            JsonObject entry = GSON.fromJson(text, JsonObject.class);
            long before = System.currentTimeMillis();
            SendReceipt receipt = producer.send(message(entry, blob).build());
            long after = System.currentTimeMillis();
            Map<String, Object> line = new LinkedHashMap<>();
            line.put("event", "sent");
            line.put("id", entry.get("id").getAsInt());
            line.put("message_id", receipt.getMessageId().toString());
            line.put("offset", ((SendReceiptImpl) receipt).getOffset());
            line.put("before_ms", before);
            line.put("after_ms", after);
            write(line);
        }
        write(Map.of("event", "done"));
        untilInputEnds(producer::close);
    }

    private MessageBuilder message(JsonObject entry, byte[] blob) {
        int offset = entry.get("offset").getAsInt();
        int size = entry.get("size").getAsInt();
        MessageBuilder builder = provider.newMessageBuilder()
            .setTopic(topic)
            .setBody(Arrays.copyOfRange(blob, offset, offset + size));
        if (!entry.get("tag").isJsonNull()) {
            builder.setTag(entry.get("tag").getAsString());
        }
        List<String> keys = new ArrayList<>();
        entry.getAsJsonArray("keys").forEach(key -> keys.add(key.getAsString()));
        if (!keys.isEmpty()) {
            builder.setKeys(keys.toArray(new String[0]));
        }
        entry.getAsJsonObject("properties").entrySet()
            .forEach(property -> builder.addProperty(property.getKey(), property.getValue().getAsString()));
        return builder;
    }

    private void simple() throws Exception {
        SimpleConsumer consumer = provider.newSimpleConsumerBuilder()
            .setClientConfiguration(configuration)
            .setConsumerGroup(options.get("group"))
            .setAwaitDuration(AWAIT)
            .setSubscriptionExpressions(Collections.singletonMap(topic, FilterExpression.SUB_ALL))
            .build();
        write(Map.of("event", "started"));
        Thread ending = new Thread(() -> untilInputEnds(consumer::close));
        ending.start();
        while (true) {
            for (MessageView message : consumer.receive(32, INVISIBLE)) {
                report(message);
                consumer.ack(message);
            }
        }
    }

    private void push() throws Exception {
        PushConsumer consumer = provider.newPushConsumerBuilder()
            .setClientConfiguration(configuration)
            .setConsumerGroup(options.get("group"))
            .setSubscriptionExpressions(Collections.singletonMap(topic, FilterExpression.SUB_ALL))
            .setMessageListener(message -> {
                report(message);
                return ConsumeResult.SUCCESS;
            })
            .build();
        write(Map.of("event", "started"));
        untilInputEnds(consumer::close);
    }

    private static void report(MessageView message) {
        if (message.getProperties().containsKey(WARM_UP_PROPERTY)) {
            write(Map.of("event", "warm"));
            return;
        }
        ByteBuffer buffer = message.getBody();
        byte[] body = new byte[buffer.remaining()];
        buffer.get(body);
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("event", "received");
        line.put("message_id", message.getMessageId().toString());
        line.put("topic", message.getTopic());
        line.put("size", body.length);
        line.put("sha256", sha256(body));
        message.getTag().ifPresent(tag -> line.put("tag", tag));
        line.put("keys", new ArrayList<>(message.getKeys()));
        line.put("properties", message.getProperties());
        line.put("born_ms", message.getBornTimestamp());
        line.put("born_host", message.getBornHost());
        line.put("attempt", message.getDeliveryAttempt());
        line.put("offset", ((MessageViewImpl) message).getOffset());
        write(line);
    }

    private static String sha256(byte[] body) {
        try {
            return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(body));
        } catch (java.security.NoSuchAlgorithmException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    private static synchronized void write(Map<String, ?> line) {
        OUT.println(GSON.toJson(line));
    }

    private interface Closing {
        void close() throws IOException;
    }

    /** Waits for the end of the standard input, then closes the client and ends the process. */
    private static void untilInputEnds(Closing client) {
        try {
            System.in.transferTo(java.io.OutputStream.nullOutputStream());
            stopping = true;
            Thread closing = new Thread(() -> {
                try {
                    client.close();
                } catch (IOException failure) {
                    System.err.println(failure);
                }
            });
            closing.start();
            closing.join(CLOSE_LIMIT.toMillis());
        } catch (IOException | InterruptedException failure) {
            System.err.println(failure);
        }
        Runtime.getRuntime().halt(0);
    }
}
