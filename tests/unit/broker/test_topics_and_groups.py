"""Topics and consumer groups: what is a valid change, defaults, queue choice, retry delays."""

from __future__ import annotations

import pytest

from razzo.broker.groups import ExponentialRetry, Group, GroupExists, GroupTable
from razzo.broker.topics import Topic, TopicExists, TopicTable, TopicType
from razzo.protocol import limits
from razzo.protocol.codes import Code
from razzo.protocol.errors import RequestRefused
from razzo.storage import siphash24


@pytest.fixture
def topics():
    return TopicTable(siphash24, topics_max=3)


def put(topics, *args, update=False, **kwargs):
    event = topics.put(Topic(*args, **kwargs), update=update)
    topics.apply(event)
    return event.topic


def code_of(call, *args, **kwargs):
    with pytest.raises(RequestRefused) as refused:
        call(*args, **kwargs)
    return refused.value.code


class TestTopics:
    def test_absent_numbers_get_defaults(self, topics):
        topic = put(topics, "t", 0, 0, 0, TopicType.UNSPECIFIED)
        assert topic == Topic(
            "t", limits.QUEUES_PER_TOPIC_DEFAULT, limits.QUEUES_PER_TOPIC_DEFAULT, 6, TopicType.NORMAL
        )

    def test_one_number_stands_for_both(self, topics):
        topic = put(topics, "t", 0, 5)
        assert (topic.read_queues, topic.write_queues) == (5, 5)

    def test_nothing_takes_effect_before_it_is_applied(self, topics):
        topics.put(Topic("t", 1, 1), update=False)
        assert topics.find("t") is None

    def test_an_update_keeps_what_it_does_not_name(self, topics):
        put(topics, "t", 4, 4, type=TopicType.FIFO, attributes={"a": "b"})
        topic = put(topics, "t", 8, 8, 0, TopicType.UNSPECIFIED, update=True)
        assert (topic.read_queues, topic.type, dict(topic.attributes)) == (8, TopicType.FIFO, {"a": "b"})

    @pytest.mark.parametrize(
        ("wanted", "code"),
        [
            (Topic("t", 1, 1, type=TopicType.FIFO), Code.PRECONDITION_FAILED),
            (Topic("t", 1, 1), Code.PRECONDITION_FAILED),
            (Topic("t", 2, 2, 1), Code.BAD_REQUEST),
            (Topic("t", 2, 2, 7), Code.BAD_REQUEST),
            (Topic("t", 2, 3), Code.BAD_REQUEST),
            (Topic("t", 2, limits.QUEUES_PER_TOPIC_MAX + 1), Code.BAD_REQUEST),
            (Topic("t", 2, 2, attributes={str(n): "v" for n in range(65)}), Code.BAD_REQUEST),
            (Topic("other", 2, 2), Code.TOPIC_NOT_FOUND),
        ],
    )
    def test_refused_updates(self, topics, wanted, code):
        put(topics, "t", 2, 2)
        assert code_of(topics.put, wanted, update=True) == code

    def test_it_exists(self, topics):
        put(topics, "t", 2, 2)
        with pytest.raises(TopicExists):
            topics.put(Topic("t", 2, 2), update=False)

    def test_the_table_is_bounded(self, topics):
        for name in "abc":
            put(topics, name, 1, 1)
        assert code_of(topics.put, Topic("d", 1, 1), update=False) == Code.PRECONDITION_FAILED
        topics.apply(topics.delete("a"))
        put(topics, "d", 1, 1)

    def test_every_change_counts(self, topics):
        before = topics.version
        put(topics, "t", 1, 1)
        topics.apply(topics.delete("t"))
        assert topics.version == before + 2

    @pytest.mark.parametrize(
        ("name", "code"),
        [("unknown", Code.TOPIC_NOT_FOUND), ("rmq_sys_x", Code.ILLEGAL_TOPIC), ("", Code.ILLEGAL_TOPIC)],
    )
    def test_get(self, topics, name, code):
        assert code_of(topics.get, name) == code
        assert code_of(topics.delete, name) == code

    @pytest.mark.parametrize("kind", list(TopicType))
    def test_accepted_types(self, topics, kind):
        topic = Topic("t", 1, 1, type=kind)
        accepted = {message_type for message_type in TopicType if topic.accepts(message_type)}
        expected = {
            TopicType.UNSPECIFIED: {TopicType.NORMAL},
            TopicType.MIXED: {TopicType.NORMAL, TopicType.FIFO, TopicType.DELAY, TopicType.TRANSACTION},
        }
        assert accepted == expected.get(kind, {kind})

    def test_round_robin_over_the_write_queues(self, topics):
        topic = put(topics, "t", 3, 2)
        assert [topics.next_queue(topic) for _ in range(5)] == [0, 1, 0, 1, 0]

    def test_a_message_group_keeps_its_queue(self, topics):
        topic = put(topics, "t", 8, 8)
        queues = {name: topics.queue_of_group(topic, name) for name in ("order-1001", "order-1002", "user-42")}
        assert queues == {name: topics.queue_of_group(topic, name) for name in queues}
        assert all(0 <= queue < 8 for queue in queues.values())
        spread = {topics.queue_of_group(topic, f"group-{n}") for n in range(200)}
        assert spread == set(range(8))

    def test_permissions(self):
        assert [(Topic("t", 1, 1, bits).readable, Topic("t", 1, 1, bits).writable) for bits in (2, 4, 6)] == [
            (False, True),
            (True, False),
            (True, True),
        ]


class TestGroups:
    @pytest.fixture
    def groups(self):
        return GroupTable(groups_max=2)

    def test_put_find_delete(self, groups):
        groups.apply(groups.put(Group("g"), update=False))
        assert groups.get("g") == Group("g")
        with pytest.raises(GroupExists):
            groups.put(Group("g"), update=False)
        groups.apply(groups.put(Group("g", fifo=True), update=True))
        assert groups.get("g").fifo
        groups.apply(groups.delete("g"))
        assert groups.find("g") is None

    def test_refusals(self, groups):
        assert code_of(groups.get, "g") == Code.CONSUMER_GROUP_NOT_FOUND
        assert code_of(groups.get, "a b") == Code.ILLEGAL_CONSUMER_GROUP
        assert code_of(groups.put, Group("g"), update=True) == Code.CONSUMER_GROUP_NOT_FOUND
        assert code_of(groups.delete, "g") == Code.CONSUMER_GROUP_NOT_FOUND
        for bad in (
            Group("g", retry_max_times=-1),
            Group("g", retry_delays_ms=(limits.INVISIBLE_MS_MAX + 1,)),
            Group("g", exponential=ExponentialRetry(1, 2, 101.0)),
            Group("g", exponential=ExponentialRetry(1, 2, float("nan"))),
            Group("g", attributes={str(n): "v" for n in range(65)}),
        ):
            assert code_of(groups.put, bad, update=False) == Code.BAD_REQUEST

    def test_the_table_is_bounded(self, groups):
        for name in "ab":
            groups.apply(groups.put(Group(name), update=False))
        assert code_of(groups.put, Group("c"), update=False) == Code.PRECONDITION_FAILED

    def test_the_first_delivery_counts(self):
        assert Group("g", retry_max_times=0).policy.attempts_max == 1
        assert Group("g").policy.attempts_max == 17

    @pytest.mark.parametrize(
        ("group", "delays"),
        [
            (Group("g"), [1_000, 5_000, 10_000, 30_000]),
            (Group("g", retry_delays_ms=(7, 9)), [7, 9, 9, 9]),
            (Group("g", exponential=ExponentialRetry(10, 35, 2.0)), [10, 20, 35, 35]),
        ],
    )
    def test_retry_delays(self, group, delays):
        assert [group.retry_delay_ms(attempt) for attempt in (1, 2, 3, 4)] == delays

    def test_the_longest_delay_repeats(self):
        assert Group("g").retry_delay_ms(10_000) == limits.DELAY_LEVELS_MS[-1]
        assert Group("g", exponential=ExponentialRetry(10, 35, 100.0)).retry_delay_ms(10_000) == 35
