"""Messages of random shape: every length, host kind, tag, key and flag that the format knows, from one seed."""

from __future__ import annotations

import random

from twin.records import encode_properties, pack_host
from twin.store import Message

TOPICS = ["Orders", "T", "%RETRY%" + "g" * 121 + "+x", "SCHEDULE_TOPIC_XXXX", "clicks_2-b"]
QUEUES = [0, 1, 7, 65535]
TAGS = ["", "TagA", "TagB", "payment", "中文", "polygenelubricants"]
KEYS = ["order-1", "order-2", "k", "钥匙"]
BORN_HOSTS = [pack_host("10.1.2.3", 40000), pack_host("2001:db8::1", 1), pack_host("127.0.0.1", 65535)]
SYS_FLAGS = [0, 0, 0, 0x1, 0x301, 0x2, 0x4, 0x8, 0xC]


def random_message(rng: random.Random, body_bytes_max: int = 300) -> Message:
    """One message. Lengths crowd at zero, one and the largest, where mistakes live."""
    return Message(
        topic=rng.choice(TOPICS),
        queue_id=rng.choice(QUEUES),
        body=rng.randbytes(rng.choice([0, 1, rng.randrange(body_bytes_max), rng.randrange(60), body_bytes_max])),
        properties=random_properties(rng),
        sys_flag=rng.choice(SYS_FLAGS),
        flag=rng.choice([0, 1, -1, 2**31 - 1, -(2**31)]),
        born_ms=rng.choice([0, 1, 1_700_000_000_000, 2**62]),
        born_host=rng.choice(BORN_HOSTS),
        reconsume_times=rng.choice([0, 1, 16]),
        prepared_offset=rng.choice([0, 0, 12345, 2**40]),
    )


def random_properties(rng: random.Random) -> bytes:
    """Properties as Java clients write them: known names, users' names, any order, and now and then none at all."""
    if rng.random() < 0.15:
        return b""
    pairs = {"UNIQ_KEY": f"{rng.getrandbits(128):032X}"}
    tag = rng.choice(TAGS)
    if tag:
        pairs["TAGS"] = tag
    if rng.random() < 0.6:
        pairs["KEYS"] = " " * rng.randrange(2) + " ".join(rng.sample(KEYS, rng.randrange(1, 3)))
    if rng.random() < 0.3:
        pairs["DELAY"] = str(rng.choice([0, 1, 3, 18, 40]))
    if rng.random() < 0.3:
        pairs["__user"] = "v" * rng.randrange(1, 40)
    names = list(pairs)
    rng.shuffle(names)
    raw = encode_properties({name: pairs[name] for name in names})
    return raw[:-1] if rng.random() < 0.1 else raw


def random_batch(rng: random.Random, count_max: int = 6) -> list[Message]:
    return [random_message(rng) for _ in range(rng.randrange(1, count_max + 1))]
