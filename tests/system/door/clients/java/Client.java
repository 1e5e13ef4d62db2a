import io.grpc.CallOptions;
import io.grpc.ClientCall;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.MethodDescriptor.MethodType;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.netty.shaded.io.grpc.netty.GrpcSslContexts;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.netty.shaded.io.netty.handler.ssl.util.InsecureTrustManagerFactory;
import io.grpc.stub.ClientCalls;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** The probe service seen by grpc-java on netty: see ../../programs.py for what is printed. */
public final class Client {
    private static final int PATIENCE_S = 30;
    private static final Metadata.Key<String> TEXT = Metadata.Key.of("i-text", Metadata.ASCII_STRING_MARSHALLER);
    private static final Metadata.Key<byte[]> HEAD = Metadata.Key.of("i-data-bin", Metadata.BINARY_BYTE_MARSHALLER);
    private static final Metadata.Key<byte[]> TAIL = Metadata.Key.of("t-data-bin", Metadata.BINARY_BYTE_MARSHALLER);

    private static final MethodDescriptor.Marshaller<byte[]> RAW = new MethodDescriptor.Marshaller<>() {
        @Override public InputStream stream(byte[] value) {
            return new ByteArrayInputStream(value);
        }

        @Override public byte[] parse(InputStream stream) {
            try {
                return stream.readAllBytes();
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }
    };

    private interface Check {
        void run() throws Exception;
    }

    private final ManagedChannel channel;

    private Client(ManagedChannel channel) {
        this.channel = channel;
    }

    /** What one call brought, in the order it came: Metadata, byte[] messages, then Status (with its trailers). */
    private static final class Events extends ClientCall.Listener<byte[]> {
        final BlockingQueue<Object> queue = new LinkedBlockingQueue<>();
        volatile Metadata trailers;

        @Override public void onHeaders(Metadata headers) {
            queue.add(headers);
        }

        @Override public void onMessage(byte[] message) {
            queue.add(message);
        }

        @Override public void onClose(Status status, Metadata trailers) {
            this.trailers = trailers;
            queue.add(status);
        }

        Object next() throws InterruptedException {
            Object event = queue.poll(PATIENCE_S, TimeUnit.SECONDS);
            if (event == null) {
                throw new AssertionError("nothing came");
            }
            return event;
        }

        /** Messages up to the end. */
        List<byte[]> messages() throws InterruptedException {
            List<byte[]> found = new ArrayList<>();
            for (Object event = next(); !(event instanceof Status); event = next()) {
                if (event instanceof byte[] message) {
                    found.add(message);
                }
            }
            return found;
        }

        Status end() throws InterruptedException {
            for (Object event = next(); ; event = next()) {
                if (event instanceof Status status) {
                    return status;
                }
            }
        }
    }

    private static MethodDescriptor<byte[], byte[]> method(String name, MethodType type) {
        return MethodDescriptor.newBuilder(RAW, RAW).setType(type).setFullMethodName("razzo.test.Probe/" + name).build();
    }

    private ClientCall<byte[], byte[]> start(String name, MethodType type, Metadata metadata, Events events) {
        CallOptions options = CallOptions.DEFAULT.withDeadlineAfter(PATIENCE_S, TimeUnit.SECONDS);
        ClientCall<byte[], byte[]> call = channel.newCall(method(name, type), options);
        call.start(events, metadata);
        call.request(Integer.MAX_VALUE);
        return call;
    }

    private Events ask(String name, MethodType type, byte[] request, Metadata metadata) {
        Events events = new Events();
        ClientCall<byte[], byte[]> call = start(name, type, metadata, events);
        call.sendMessage(request);
        call.halfClose();
        return events;
    }

    private byte[] unary(String name, byte[] request) {
        CallOptions options = CallOptions.DEFAULT.withDeadlineAfter(PATIENCE_S, TimeUnit.SECONDS);
        return ClientCalls.blockingUnaryCall(channel, method(name, MethodType.UNARY), options, request);
    }

    private Status failure(String name, byte[] request) {
        try {
            unary(name, request);
        } catch (StatusRuntimeException error) {
            return error.getStatus();
        }
        throw new AssertionError("the call did not fail");
    }

    private static void expect(Object wanted, Object got) {
        if (!wanted.equals(got)) {
            throw new AssertionError(got + " is not " + wanted);
        }
    }

    private static void expect(Status.Code code, String text, Status got) {
        expect(code, got.getCode());
        if (text != null) {
            expect(text, got.getDescription());
        }
    }

    private Map<String, Check> checks() {
        Map<String, Check> checks = new LinkedHashMap<>();
        checks.put("echo sizes", this::echoSizes);
        checks.put("many at once", this::manyAtOnce);
        checks.put("statuses", this::statuses);
        checks.put("unknown method", () -> {
            for (int size : new int[] {0, 1, 200_000}) {
                expect(Status.Code.UNIMPLEMENTED, null, failure("Nothing", new byte[size]));
            }
        });
        checks.put("metadata", this::metadata);
        checks.put("deadline", this::deadline);
        checks.put("server stream", this::serverStream);
        checks.put("stream that fails", () -> {
            Events events = ask("FailStream", MethodType.SERVER_STREAMING, "8 too much".getBytes(), new Metadata());
            expect(Metadata.class, events.next().getClass());
            expect("first", new String((byte[]) events.next()));
            expect(Status.Code.RESOURCE_EXHAUSTED, "too much", events.end());
        });
        checks.put("cancel", this::cancel);
        checks.put("conversation", this::conversation);
        checks.put("fail while writing", () -> {
            Events events = new Events();
            ClientCall<byte[], byte[]> call = start("FailChat", MethodType.BIDI_STREAMING, new Metadata(), events);
            call.sendMessage("3 not like this".getBytes());
            expect(Status.Code.INVALID_ARGUMENT, "not like this", events.end());
        });
        checks.put("too large", () -> {
            for (String name : List.of("Echo", "EchoBatch")) { // the test sets a bound of 8 MiB
                expect(Status.Code.RESOURCE_EXHAUSTED, null, failure(name, new byte[9 << 20]));
            }
        });
        checks.put("gzip", () -> {
            CallOptions options = CallOptions.DEFAULT.withCompression("gzip").withDeadlineAfter(PATIENCE_S, TimeUnit.SECONDS);
            try {
                byte[] request = new byte[10_000];
                expect(10_000, ClientCalls.blockingUnaryCall(channel, method("Echo", MethodType.UNARY), options, request).length);
            } catch (StatusRuntimeException error) {
                expect(Status.Code.UNIMPLEMENTED, null, error.getStatus());
            }
        });
        checks.put("crash", () -> {
            for (String name : List.of("Crash", "CrashBatch")) {
                expect(Status.Code.INTERNAL, null, failure(name, new byte[0]));
            }
        });
        checks.put("deadline storm", this::deadlineStorm);
        return checks;
    }

    private void echoSizes() {
        for (String name : List.of("Echo", "EchoBatch")) {
            for (int size : new int[] {0, 1, 1024, 16384, 300_000, 3 << 20}) {
                byte[] request = new byte[size];
                Arrays.fill(request, (byte) 7);
                expect(true, Arrays.equals(request, unary(name, request)));
            }
        }
    }

    private void manyAtOnce() throws InterruptedException {
        List<Events> calls = new ArrayList<>();
        for (int number = 0; number < 2000; number++) {
            calls.add(ask("EchoBatch", MethodType.UNARY, Integer.toString(number).getBytes(), new Metadata()));
        }
        for (int number = 0; number < calls.size(); number++) {
            List<byte[]> messages = calls.get(number).messages();
            expect(1, messages.size());
            expect(Integer.toString(number), new String(messages.get(0)));
        }
    }

    private void statuses() {
        for (String name : List.of("Fail", "FailBatch")) {
            for (int code = 1; code <= 16; code++) {
                Status status = failure(name, (code + " 50 % of é\nno").getBytes(java.nio.charset.StandardCharsets.UTF_8));
                expect(Status.fromCodeValue(code).getCode(), "50 % of é\nno", status);
            }
        }
    }

    private void metadata() throws InterruptedException {
        byte[] binary = {0, -1, -2, 1};
        Metadata metadata = new Metadata();
        metadata.put(TEXT, "one");
        metadata.put(TEXT, "two");
        metadata.put(HEAD, binary);
        metadata.put(TAIL, binary);
        Events events = ask("Mirror", MethodType.UNARY, new byte[0], metadata);
        Metadata headers = (Metadata) events.next();
        expect(Status.Code.OK, events.end().getCode());
        List<String> texts = new ArrayList<>();
        headers.getAll(TEXT).forEach(texts::add);
        expect(List.of("one", "two"), texts);
        expect(true, Arrays.equals(binary, headers.get(HEAD)));
        expect(true, Arrays.equals(binary, events.trailers.get(TAIL)));
    }

    private void deadline() {
        for (String name : List.of("Wait", "HoldBatch")) {
            CallOptions options = CallOptions.DEFAULT.withDeadlineAfter(100, TimeUnit.MILLISECONDS);
            try {
                ClientCalls.blockingUnaryCall(channel, method(name, MethodType.UNARY), options, new byte[0]);
                throw new AssertionError("no deadline");
            } catch (StatusRuntimeException error) {
                expect(Status.Code.DEADLINE_EXCEEDED, null, error.getStatus());
            }
        }
    }

    private void serverStream() throws InterruptedException {
        int[][] shapes = {{0, 0}, {1000, 0}, {500, 1000}, {40, 500_000}};
        for (String name : List.of("Count", "Raw")) {
            for (int[] shape : shapes) {
                byte[] request = (shape[0] + " " + shape[1]).getBytes();
                List<byte[]> messages = ask(name, MethodType.SERVER_STREAMING, request, new Metadata()).messages();
                expect(shape[0], messages.size());
                for (int number = 0; number < shape[0]; number++) {
                    expect((number + " ").length() + shape[1], messages.get(number).length);
                }
            }
        }
    }

    private void cancel() throws InterruptedException {
        Events events = new Events();
        ClientCall<byte[], byte[]> call = channel.newCall(method("Flood", MethodType.SERVER_STREAMING), CallOptions.DEFAULT);
        call.start(events, new Metadata());
        call.request(50);
        call.sendMessage("30000".getBytes());
        call.halfClose();
        for (int seen = 0; seen < 51; seen++) { // headers and fifty messages
            events.next();
        }
        call.cancel("enough", null);
        expect(Status.Code.CANCELLED, events.end().getCode());
    }

    private void conversation() throws InterruptedException {
        Events events = new Events();
        ClientCall<byte[], byte[]> call = start("Chat", MethodType.BIDI_STREAMING, new Metadata(), events);
        Metadata headers = (Metadata) events.next(); // before the first message
        expect("at once", headers.get(Metadata.Key.of("x-welcome", Metadata.ASCII_STRING_MARSHALLER)));
        for (int number = 0; number < 200; number++) {
            call.sendMessage(Integer.toString(number).getBytes());
            expect(Integer.toString(number), new String((byte[]) events.next()));
        }
        call.halfClose();
        expect(Status.Code.OK, events.end().getCode());
    }

    private void deadlineStorm() throws InterruptedException {
        for (int round = 0; round < 20; round++) {
            List<Events> calls = new ArrayList<>();
            for (int number = 0; number < 100; number++) {
                CallOptions options = CallOptions.DEFAULT.withDeadlineAfter(200 + 100 * number, TimeUnit.MICROSECONDS);
                Events events = new Events();
                ClientCall<byte[], byte[]> call = channel.newCall(method("Echo", MethodType.UNARY), options);
                call.start(events, new Metadata());
                call.request(2);
                call.sendMessage(new byte[1000]);
                call.halfClose();
                calls.add(events);
            }
            for (Events events : calls) {
                events.end();
            }
        }
        expect("alive", new String(unary("Echo", "alive".getBytes())));
    }

    private void drain() throws Exception {
        expect("in time", new String(unary("HoldBatch", "held".getBytes())));
        tell("held", "");
        System.in.read();
        CallOptions options = CallOptions.DEFAULT.withWaitForReady().withDeadlineAfter(PATIENCE_S, TimeUnit.SECONDS);
        byte[] answer = ClientCalls.blockingUnaryCall(channel, method("Echo", MethodType.UNARY), options, "again".getBytes());
        expect("again", new String(answer));
    }

    private static void tell(String check, String error) {
        String quoted = error.replace("\\", "\\\\").replace("\"", "\\\"").replaceAll("\\p{Cntrl}", " ");
        System.out.println("{\"check\": \"" + check + "\", \"error\": \"" + quoted + "\"}");
    }

    public static void main(String[] arguments) throws Exception {
        List<String> flags = List.of(arguments).subList(0, arguments.length - 1);
        NettyChannelBuilder builder = NettyChannelBuilder.forTarget(arguments[arguments.length - 1]).maxInboundMessageSize(64 << 20);
        if (flags.contains("--tls")) { // any certificate will do, as for the official client
            builder.sslContext(GrpcSslContexts.forClient().trustManager(InsecureTrustManagerFactory.INSTANCE).build());
        } else {
            builder.usePlaintext();
        }
        ManagedChannel channel = builder.build();
        Client client = new Client(channel);
        Map<String, Check> checks = flags.contains("--drain") ? Map.of("drain", client::drain) : client.checks();
        for (Map.Entry<String, Check> check : checks.entrySet()) {
            try {
                check.getValue().run();
                tell(check.getKey(), "");
            } catch (Exception | AssertionError error) {
                tell(check.getKey(), error.toString());
            }
        }
        channel.shutdownNow();
    }
}
