import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.constant.PermName;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.namesrv.NamesrvStartup;
import org.apache.rocketmq.remoting.protocol.admin.TopicOffset;
import org.apache.rocketmq.remoting.protocol.admin.TopicStatsTable;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * One JVM that holds an Apache name server and Apache's own classic clients, and does what it is told by lines of JSON.
 *
 * Every request line has an "op" and gets one answer line: {"value": ...} or {"error": "..."}. Requests are served in order.
 * Bodies travel as base64. Nothing here knows of Razzo: it is Apache's half of the comparison.
 */
public final class ApacheDesk {
    private static final int PULL_COUNT = 32;
    private static final int KEY_HITS_MAX = 64;
    private static final long TIMEOUT_MS = 10_000;
    private static final int READ_WRITE = PermName.PERM_READ | PermName.PERM_WRITE;

    /** The clients of one broker's run; made anew for each run, so that no route of an earlier run is remembered. */
    private static final class Clients {
        final String address;
        final String broker;
        final DefaultMQAdminExt admin = new DefaultMQAdminExt(TIMEOUT_MS);
        final DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("interop-reader");
        final TransactionMQProducer producer = new TransactionMQProducer("interop-writer");

        Clients(String nameserver, String broker, String address, int run) throws Exception {
            this.broker = broker;
            this.address = address;
            String instance = "run-" + run;
            admin.setNamesrvAddr(nameserver);
            admin.setInstanceName(instance);
            consumer.setNamesrvAddr(nameserver);
            consumer.setInstanceName(instance);
            producer.setNamesrvAddr(nameserver);
            producer.setInstanceName(instance);
            producer.setSendMsgTimeout((int) TIMEOUT_MS);
            producer.setTransactionListener(new AskedOutcome());
            admin.start();
            consumer.start();
            producer.start();
        }

        void shutdown() {
            producer.shutdown();
            consumer.shutdown();
            admin.shutdown();
        }
    }

    /** Ends each transaction the way its request said. */
    private static final class AskedOutcome implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object outcome) {
            return LocalTransactionState.valueOf((String) outcome);
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            return LocalTransactionState.UNKNOW;
        }
    }

    private final String nameserver;
    private final Map<String, Clients> open = new HashMap<>();
    private int runs;

    private ApacheDesk(String nameserver) {
        this.nameserver = nameserver;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        NamesrvStartup.main0(new String[] {"-c", arguments[0]});
        ApacheDesk desk = new ApacheDesk(arguments[1]);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        answers.println("{\"value\":\"ready\"}");
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            JSONObject answer = new JSONObject();
            try {
                answer.put("value", desk.serve(JSON.parseObject(line)));
            } catch (Exception failure) {
                failure.printStackTrace();
                answer.put("error", failure.toString());
            }
            answers.println(answer.toJSONString());
            answers.flush();
        }
        System.exit(0);
    }

    private Object serve(JSONObject request) throws Exception {
        String broker = request.getString("broker");
        Clients clients = open.get(broker);
        switch (request.getString("op")) {
            case "registered":
                return isRegistered(broker, request.getString("address"));
            case "connect":
                open.put(broker, new Clients(nameserver, broker, request.getString("address"), ++runs));
                return null;
            case "disconnect":
                open.remove(broker).shutdown();
                return null;
            case "create_topic":
                int queues = request.getIntValue("queues");
                TopicConfig topic = new TopicConfig(request.getString("topic"), queues, queues);
                topic.setPerm(request.containsKey("permission") ? request.getIntValue("permission") : READ_WRITE);
                if (request.containsKey("type")) {
                    topic.setAttributes(Map.of("+message.type", request.getString("type")));
                }
                clients.admin.createAndUpdateTopicConfig(clients.address, topic);
                return null;
            case "create_group":
                SubscriptionGroupConfig group = request.toJavaObject(SubscriptionGroupConfig.class);
                clients.admin.createAndUpdateSubscriptionGroupConfig(clients.address, group);
                return null;
            case "consume":
                return consume(clients, request);
            case "max_offset":
                return maxOffset(clients, request.getString("topic"));
            case "range":
                MessageQueue queue = queue(clients, request);
                return List.of(clients.consumer.minOffset(queue), clients.consumer.maxOffset(queue));
            case "offset_by_time":
                return clients.consumer.searchOffset(queue(clients, request), request.getLongValue("timestamp_ms"));
            case "drain":
                return drain(clients, queue(clients, request), request.getString("tags"), request.getLongValue("offset"));
            case "by_key":
                QueryResult found = clients.admin.queryMessage(request.getString("topic"), request.getString("key"),
                    KEY_HITS_MAX, request.getLongValue("begin_ms"), request.getLongValue("end_ms"));
                return shown(found.getMessageList());
            case "by_id":
                return shown(clients.admin.viewMessage(request.getString("topic"), request.getString("id")));
            case "by_physical_offset":
                return shown(clients.admin.getDefaultMQAdminExtImpl().getMqClientInstance().getMQClientAPIImpl().viewMessage(
                    clients.address, request.getString("topic"), request.getLongValue("physical_offset"), TIMEOUT_MS));
            case "send":
                return send(clients, request.getJSONArray("messages"));
            case "send_batch":
                return sendBatch(clients, queue(clients, request), request.getJSONArray("bodies"));
            default:
                throw new IllegalArgumentException("no such op: " + request);
        }
    }

    /**
     * True once the name server knows the broker under this address. While it does not, the broker is asked to register: its
     * own first try fails when it comes before the broker's look for living name servers, and the next is ten seconds off.
     */
    private boolean isRegistered(String broker, String address) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt(TIMEOUT_MS);
        admin.setNamesrvAddr(nameserver);
        admin.setInstanceName("look-" + ++runs);
        admin.start();
        try {
            var brokers = admin.examineBrokerClusterInfo().getBrokerAddrTable();
            if (brokers != null && brokers.containsKey(broker)
                && brokers.get(broker).getBrokerAddrs().containsValue(address)) {
                return true;
            }
            Properties asked = new Properties();
            asked.setProperty("brokerPermission", "6");
            admin.updateBrokerConfig(address, asked);
            return false;
        } finally {
            admin.shutdown();
        }
    }

    private static MessageQueue queue(Clients clients, JSONObject request) {
        return new MessageQueue(request.getString("topic"), clients.broker, request.getIntValue("queue_id"));
    }

    /** Pulls from the offset until Apache says that there is nothing more; null tags: everything. */
    private static JSONObject drain(Clients clients, MessageQueue queue, String tags, long offset) throws Exception {
        JSONArray messages = new JSONArray();
        long next = offset;
        while (true) {
            PullResult result = clients.consumer.pull(queue, tags == null ? "*" : tags, next, PULL_COUNT, TIMEOUT_MS);
            switch (result.getPullStatus()) {
                case FOUND:
                    messages.addAll(shown(result.getMsgFoundList()));
                    break;
                case NO_MATCHED_MSG:
                    break;
                case NO_NEW_MSG:
                    return new JSONObject(Map.of("messages", messages, "next_offset", next));
                default:
                    throw new IllegalStateException(result.getPullStatus() + " at " + next + " of " + queue + ": " + result);
            }
            if (result.getNextBeginOffset() <= next) {
                throw new IllegalStateException("no progress beyond " + next + " of " + queue + ": " + result);
            }
            next = result.getNextBeginOffset();
        }
    }

    /**
     * A classic consumer of the group goes on where the group is on one queue, takes up to "count" messages and commits. Those
     * whose place in the answer is in "send_back" are sent back for a retry after the delay level named there.
     */
    private JSONArray consume(Clients clients, JSONObject request) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(request.getString("group"));
        consumer.setNamesrvAddr(nameserver);
        consumer.setInstanceName("consume-" + ++runs);
        consumer.start();
        try {
            MessageQueue queue = queue(clients, request);
            long from = Math.max(0, consumer.fetchConsumeOffset(queue, true));
            PullResult result = consumer.pull(queue, "*", from, request.getIntValue("count"), TIMEOUT_MS);
            List<MessageExt> messages = result.getMsgFoundList() == null ? List.of() : result.getMsgFoundList();
            JSONObject back = request.getJSONObject("send_back");
            for (String place : back == null ? List.<String>of() : List.copyOf(back.keySet())) {
                consumer.sendMessageBack(messages.get(Integer.parseInt(place)), back.getIntValue(place), clients.broker);
            }
            consumer.getDefaultMQPullConsumerImpl().getOffsetStore()
                .updateConsumeOffsetToBroker(queue, result.getNextBeginOffset(), false);
            return shown(messages);
        } finally {
            consumer.shutdown();
        }
    }

    /** How many messages queue 0 of a topic has seen; 0 while the broker has no such topic. */
    private static long maxOffset(Clients clients, String topic) throws Exception {
        TopicStatsTable stats;
        try {
            stats = clients.admin.examineTopicStats(clients.address, topic);
        } catch (MQBrokerException absent) {
            return 0;
        }
        TopicOffset first = stats.getOffsetTable().get(new MessageQueue(topic, clients.broker, 0));
        return first == null ? 0 : first.getMaxOffset();
    }

    private static JSONArray shown(List<MessageExt> messages) {
        JSONArray list = new JSONArray();
        for (MessageExt message : messages) {
            list.add(shown(message));
        }
        return list;
    }

    private static JSONObject shown(MessageExt message) {
        JSONObject shown = new JSONObject();
        Map<String, String> properties = new HashMap<>(message.getProperties() == null ? Map.of() : message.getProperties());
        shown.put("topic", message.getTopic());
        shown.put("queue_id", message.getQueueId());
        shown.put("queue_offset", message.getQueueOffset());
        shown.put("physical_offset", message.getCommitLogOffset());
        shown.put("size", message.getStoreSize());
        shown.put("store_ms", message.getStoreTimestamp());
        shown.put("born_ms", message.getBornTimestamp());
        shown.put("born_host", shown((InetSocketAddress) message.getBornHost()));
        shown.put("store_host", shown((InetSocketAddress) message.getStoreHost()));
        shown.put("sys_flag", message.getSysFlag());
        shown.put("flag", message.getFlag());
        shown.put("body_crc", message.getBodyCRC());
        shown.put("body", Base64.getEncoder().encodeToString(message.getBody() == null ? new byte[0] : message.getBody()));
        shown.put("properties", properties);
        shown.put("reconsume_times", message.getReconsumeTimes());
        shown.put("prepared_offset", message.getPreparedTransactionOffset());
        shown.put("offset_message_id", message instanceof MessageClientExt
            ? ((MessageClientExt) message).getOffsetMsgId() : message.getMsgId());
        return shown;
    }

    private static String shown(InetSocketAddress host) {
        return host.getAddress().getHostAddress() + ":" + host.getPort();
    }

    /** Sends one by one; "outcome" makes a transaction of the message, "delay_level" a delayed one. */
    private static JSONArray send(Clients clients, JSONArray requests) throws Exception {
        JSONArray answers = new JSONArray();
        for (int at = 0; at < requests.size(); at++) {
            JSONObject request = requests.getJSONObject(at);
            byte[] body = Base64.getDecoder().decode(request.getString("body"));
            Message message = new Message(request.getString("topic"), request.getString("tags"), request.getString("keys"),
                request.getIntValue("flag"), body, true);
            JSONObject properties = request.getJSONObject("properties");
            for (String name : properties == null ? new ArrayList<String>() : properties.keySet()) {
                message.putUserProperty(name, properties.getString(name));
            }
            if (request.containsKey("delay_level")) {
                message.setDelayTimeLevel(request.getIntValue("delay_level"));
            }
            SendResult result = request.containsKey("outcome")
                ? clients.producer.sendMessageInTransaction(message, request.getString("outcome"))
                : clients.producer.send(message, queue(clients, request));
            answers.add(new JSONObject(Map.of("status", result.getSendStatus().name(), "unique_id", result.getMsgId(),
                "offset_message_id", String.valueOf(result.getOffsetMsgId()), "queue_id",
                result.getMessageQueue().getQueueId(), "queue_offset", result.getQueueOffset())));
        }
        return answers;
    }

    /** Sends texts as one batch, each with the tag "TagB"; the queue offset of the first. */
    private static long sendBatch(Clients clients, MessageQueue queue, JSONArray bodies) throws Exception {
        List<Message> messages = new ArrayList<>();
        for (int at = 0; at < bodies.size(); at++) {
            messages.add(new Message(queue.getTopic(), "TagB", bodies.getString(at).getBytes(StandardCharsets.UTF_8)));
        }
        return clients.producer.send(messages, queue).getQueueOffset();
    }
}
