"""Checkpoints and acknowledgements of POP consumers, as Apache's broker writes them."""

from __future__ import annotations

import json
from itertools import permutations

from razzo.broker.hand_over import origin_of, without_apaches_own
from razzo.broker.pop_records import ACK, BATCH_ACK, CHECKPOINT, OutMessage, PopLedger
from razzo.broker.topics import Topic

POP_MS, INVISIBLE_MS = 1_795_251_460_799, 30_000


def checkpoint(**changed):
    record = {"bm": 0, "bn": "b", "c": "g", "d": [0, 1, 2, 5], "it": INVISIBLE_MS, "n": 4, "pt": POP_MS, "q": 1,
              "reviveTime": POP_MS + INVISIBLE_MS, "ro": 0, "so": 10, "t": "T"}  # fmt: skip
    return CHECKPOINT, json.dumps(record | changed).encode()


def ack(offset, **changed):
    record = {"ao": offset, "bn": "b", "c": "g", "pt": POP_MS, "q": 1, "so": 10, "t": "T"}
    return ACK, json.dumps(record | changed).encode()


def batch_ack(*offsets):
    return BATCH_ACK, ack(-1, aol=offsets)[1]


def out_of(*records, processed=()):
    ledger = PopLedger()
    for tag, body in records:
        ledger.take(tag, body)
    for tag, body in processed:
        ledger.take(tag, body, processed=True)
    assert ledger.unreadable == 0
    return [out.offset for out in ledger.out()]


def test_a_message_out_is_told_with_its_times():
    ledger = PopLedger()
    ledger.take(*checkpoint(d=[3], n=1))
    assert list(ledger.out()) == [OutMessage("g", "T", 1, 13, POP_MS, POP_MS + INVISIBLE_MS)]


def test_acks_in_any_order_and_any_number():
    records = [checkpoint(), ack(11), batch_ack(10, 15), ack(11)]
    for order in permutations(records):
        assert out_of(*order) == [12]
    assert out_of(*records, *records) == [12]


def test_acks_of_another_hand_out_do_not_count():
    assert out_of(checkpoint(), ack(10, pt=POP_MS + 1), ack(10, q=0), ack(10, c="h"), ack(10, so=9)) == [10, 11, 12, 15]


def test_the_bitmap_says_what_was_acknowledged_in_memory():
    assert out_of(checkpoint(bm=0b1001)) == [11, 12]


def test_old_checkpoints_name_consecutive_offsets():
    assert out_of(checkpoint(d=None, n=3)) == [10, 11, 12]


def test_a_processed_checkpoint_is_over_wherever_else_it_lies():
    assert out_of(checkpoint(), processed=[checkpoint()]) == []


def test_what_cannot_be_read_is_counted():
    ledger = PopLedger()
    for tag, body in ((CHECKPOINT, b"{"), (ACK, b"[]"), (CHECKPOINT, b"{}"), (BATCH_ACK, ack(1)[1])):
        ledger.take(tag, body)
    assert ledger.unreadable == 4
    assert list(ledger.out()) == []


def test_retry_topics_name_group_and_topic():
    assert origin_of("%RETRY%g", "g") == ""
    assert origin_of("%RETRY%g_T", "g") == "T"
    assert origin_of("%RETRY%g+T", "g") == "T"
    assert origin_of("%RETRY%group_T", "g") is None
    assert origin_of("T", "g") is None


def test_apaches_own_topics_stay_behind():
    topics = [Topic("Orders", 1, 1), Topic("TBW102", 8, 8, 7), Topic("cluster", 16, 16, 7),
              Topic("cluster_REPLY_TOPIC", 1, 1), Topic("other_REPLY_TOPIC", 1, 1),
              Topic("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", 1, 1), Topic("RMQ_SYS_TRANS_HALF_TOPIC", 1, 1)]  # fmt: skip
    kept = [topic.name for topic in without_apaches_own(topics)]
    assert kept == ["Orders", "TBW102", "other_REPLY_TOPIC", "RMQ_SYS_TRANS_HALF_TOPIC"]
