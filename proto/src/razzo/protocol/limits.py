"""Every number that a Razzo server enforces or announces to clients. Units are in the names.

Source of the numbers: RocketMQ's server and clients (client-protocol.md 4.4, 5 and 14); what is Razzo's own says so.
Relations between them are asserted when the module is imported.
"""

KIB = 1 << 10
MIB = 1 << 20
SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS

# --- names. Lengths count characters; all of them are ASCII.
TOPIC_CHARS_MAX = 127
# %RETRY%<group>, %DLQ%<group>.
DERIVED_TOPIC_CHARS_MAX = 255
GROUP_CHARS_MAX = 120
LITE_TOPIC_BYTES_MAX = 64
CLIENT_ID_BYTES_MAX = 255

# --- one message
MESSAGE_BODY_BYTES_MAX = 4 * MIB
MESSAGE_GROUP_BYTES_MAX = 63
MESSAGE_PROPERTY_COUNT_MAX = 128
# Names and values of user properties, tag and keys together, as UTF-8.
MESSAGE_PROPERTIES_BYTES_MAX = 16 * KIB
# All properties of a record as stored, separators and the server's own included: the record counts them in an int16.
STORED_PROPERTIES_BYTES_MAX = 32_767
# What a record adds around body and properties at most (store-and-semantics.md 2.1, IPv6 hosts, longest topic).
RECORD_OVERHEAD_BYTES_MAX = 91 + 2 * 12 + 1 + DERIVED_TOPIC_CHARS_MAX
# Body and envelope together bound a record (RocketMQ: maxMessageSize + 64 KiB).
RECORD_ENVELOPE_BYTES_MAX = 64 * KIB
# Razzo's own; ids of clients are 34 characters, classic ones 32 or 56.
MESSAGE_ID_BYTES_MAX = 255
# Razzo's own; an opaque string of the tracing system.
TRACE_CONTEXT_BYTES_MAX = 1 * KIB
DELIVERY_DELAY_MS_MAX = 24 * HOUR_MS
TRANSACTION_RECOVERY_MS_MAX = 1 * HOUR_MS

# --- one request
# gRPC message, in: Apache's proxy takes 130 MiB; a batch is bounded by it and by SEND_BATCH_MESSAGES_MAX.
REQUEST_BYTES_MAX = 130 * MIB
# Razzo's own.
SEND_BATCH_MESSAGES_MAX = 1_024
# Java clients acknowledge up to this many at once.
ACK_ENTRIES_MAX = 1_024
# One element of a receive stream: grpc-js and tonic refuse more by default. A body near 4 MiB exceeds it all the same.
RECEIVE_ELEMENT_BYTES_DEFAULT = 4 * MIB
# Razzo's own.
SUBSCRIPTIONS_PER_CLIENT_MAX = 1_024
PUBLISHED_TOPICS_PER_CLIENT_MAX = 1_024
FILTER_EXPRESSION_BYTES_MAX = 8 * KIB

# --- Settings.client_properties
CLIENT_PROPERTY_COUNT_MAX = 32
CLIENT_PROPERTY_KEY_CHARS_MAX = 64
CLIENT_PROPERTY_VALUE_CHARS_MAX = 256
CLIENT_PROPERTIES_BYTES_MAX = 4 * KIB

# --- receiving
RECEIVE_MESSAGES_MAX = 32
POLL_MS_MIN = 5 * SECOND_MS
POLL_MS_MAX = 20 * SECOND_MS
# An answer leaves this long before the client's deadline.
POLL_RESERVE_MS = 500
WAITING_POLLS_PER_QUEUE_MAX = 1_024
INVISIBLE_MS_MIN = 10 * SECOND_MS
INVISIBLE_MS_MAX = 12 * HOUR_MS
# ChangeInvisibleDuration only; 0 is "at once".
CHANGE_INVISIBLE_MS_MIN = 0
CHANGE_INVISIBLE_MS_MAX = INVISIBLE_MS_MAX
# After a consumer went away, or an answer could not be written.
RELEASE_INVISIBLE_MS = 1 * SECOND_MS
FIFO_BATCH_POSITIONS_MAX = 64

# --- auto renewal
AUTO_RENEW_INITIAL_MS = 1 * MINUTE_MS
AUTO_RENEW_SCAN_MS = 5 * SECOND_MS
AUTO_RENEW_WHEN_LEFT_MS = 10 * SECOND_MS
AUTO_RENEW_STEPS_MS = tuple(minutes * MINUTE_MS for minutes in (1, 3, 5, 10, 30, 60))
AUTO_RENEW_TOTAL_MS_MAX = 3 * HOUR_MS

# --- announced in Settings
PRODUCER_ATTEMPTS = 3
PRODUCER_BACKOFF_INITIAL_MS = 10
PRODUCER_BACKOFF_MS_MAX = 1 * SECOND_MS
PRODUCER_BACKOFF_MULTIPLIER = 2.0
# Redeliveries of a group without a setting of its own; deliveries are one more.
RETRY_TIMES_DEFAULT = 16
CONSUMER_BACKOFF_INITIAL_MS = 5 * SECOND_MS
CONSUMER_BACKOFF_MS_MAX = 2 * HOUR_MS
CONSUMER_BACKOFF_MULTIPLIER = 2.0
# RocketMQ's delay levels 1 to 18, which are also the waits before redeliveries.
DELAY_LEVELS_MS = (
    *(seconds * SECOND_MS for seconds in (1, 5, 10, 30)),
    *(minutes * MINUTE_MS for minutes in (*range(1, 11), 20, 30)),
    1 * HOUR_MS,
    2 * HOUR_MS,
)
PUSH_BATCH_MESSAGES = 32
PUSH_POLL_MS = 20 * SECOND_MS
LITE_SUBSCRIPTION_QUOTA = 2_000
# Node clients miss a Settings answer that comes while they still start.
NODE_SETTINGS_AGAIN_MS = 1_500

# --- clients
CLIENT_EXPIRY_MS = 120 * SECOND_MS
LITE_SUBSCRIPTION_EXPIRY_MS = 90 * SECOND_MS
CLIENT_RELAY_TIMEOUT_MS = 5 * SECOND_MS

# --- transactions
TRANSACTION_CHECK_FIRST_MS = 6 * SECOND_MS
TRANSACTION_CHECK_INTERVAL_MS = 30 * SECOND_MS
TRANSACTION_CHECKS_MAX = 15

# --- queues
QUEUES_PER_TOPIC_DEFAULT = 8
# Razzo's own.
QUEUES_PER_TOPIC_MAX = 1_024

# --- handles: version, kind, two lengths of names, payload, mac; base64 of at most that (Razzo's own)
BROKER_NAME_BYTES_MAX = 255
HANDLE_CHARS_MAX = 2 * KIB

assert TOPIC_CHARS_MAX < DERIVED_TOPIC_CHARS_MAX
assert len("%RETRY%") + GROUP_CHARS_MAX <= DERIVED_TOPIC_CHARS_MAX
assert MESSAGE_PROPERTIES_BYTES_MAX < STORED_PROPERTIES_BYTES_MAX
# What the server adds always fits: the separators of all properties, tag and keys, and 12 KiB of its own properties.
assert MESSAGE_PROPERTIES_BYTES_MAX + 2 * (MESSAGE_PROPERTY_COUNT_MAX + 2) + 12 * KIB < STORED_PROPERTIES_BYTES_MAX
assert STORED_PROPERTIES_BYTES_MAX + RECORD_OVERHEAD_BYTES_MAX <= RECORD_ENVELOPE_BYTES_MAX
assert MESSAGE_BODY_BYTES_MAX + RECORD_ENVELOPE_BYTES_MAX < REQUEST_BYTES_MAX
assert 0 < POLL_RESERVE_MS < POLL_MS_MIN <= PUSH_POLL_MS <= POLL_MS_MAX
assert PUSH_BATCH_MESSAGES <= RECEIVE_MESSAGES_MAX <= FIFO_BATCH_POSITIONS_MAX
assert CHANGE_INVISIBLE_MS_MIN < INVISIBLE_MS_MIN < AUTO_RENEW_INITIAL_MS < AUTO_RENEW_TOTAL_MS_MAX < INVISIBLE_MS_MAX
assert AUTO_RENEW_SCAN_MS < AUTO_RENEW_WHEN_LEFT_MS < AUTO_RENEW_INITIAL_MS
assert PRODUCER_BACKOFF_INITIAL_MS <= PRODUCER_BACKOFF_MS_MAX
assert CONSUMER_BACKOFF_INITIAL_MS <= CONSUMER_BACKOFF_MS_MAX
assert len(DELAY_LEVELS_MS) == 18
assert list(DELAY_LEVELS_MS) == sorted(DELAY_LEVELS_MS)
assert len(DELAY_LEVELS_MS) >= RETRY_TIMES_DEFAULT
# base64 without padding of: 3 bytes, the broker's name, the longest payload (24 bytes), the mac.
assert (3 + BROKER_NAME_BYTES_MAX + 24 + 8 + 2) // 3 * 4 <= HANDLE_CHARS_MAX
