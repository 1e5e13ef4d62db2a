"""The client table, on a clock that the test moves."""

from __future__ import annotations

from razzo.runtime.clients import TOPICS_PER_CLIENT_MAX, ClientTable, Said


def said(group: str = "", *subscriptions: str, topics: tuple[str, ...] = ()) -> Said:
    return Said(6, 2, "5.1.2", group, dict.fromkeys(subscriptions, (1, "*")), topics)


def ids(clients: list) -> list[str]:
    return [client.client_id for client in clients]


def test_a_client_lives_by_heartbeats() -> None:
    table = ClientTable(expiry_ms=100)
    table.heartbeat("c", 2, "g", 0)
    assert table.expire(100) == []
    table.heartbeat("c", 2, "g", 100)
    assert table.expire(200) == []
    assert ids(table.expire(201)) == ["c"]
    assert table.get("c") is None
    assert table.of_group("g") == []


def test_a_client_lives_by_its_stream_and_for_a_while_after_it() -> None:
    table = ClientTable(expiry_ms=100)
    table.stream_opened("c", 0)
    table.stream_opened("c", 0)
    table.stream_lost("c", 5_000)
    assert table.expire(90_000) == [], "one stream is left"
    table.stream_lost("c", 90_000)
    assert table.expire(90_100) == []
    assert ids(table.expire(90_101)) == ["c"]


def test_a_silent_client_with_a_stream_does_not_keep_others() -> None:
    table = ClientTable(expiry_ms=100)
    table.stream_opened("streaming", 0)
    table.heartbeat("silent", 2, "g", 1)
    table.heartbeat("fresh", 2, "g", 150)
    assert ids(table.expire(200)) == ["silent"]
    assert len(table) == 2


def test_settings_replace_what_earlier_ones_said() -> None:
    table = ClientTable()
    table.settings("c", said("g", "orders", "other"), 0)
    table.settings("c", said("h", "orders"), 0, peer="ipv4:1.2.3.4:5")
    client = table.get("c")
    assert client is not None
    assert client.subscriptions == {"orders": (1, "*")}
    assert (client.group, client.language, client.peer) == ("h", 6, "ipv4:1.2.3.4:5")
    assert table.of_group("g") == []
    assert ids(table.of_group("h")) == ["c"]


def test_an_empty_heartbeat_keeps_what_is_known() -> None:
    table = ClientTable(expiry_ms=100)
    table.settings("c", said("g", "orders"), 0)
    client = table.heartbeat("c", 0, "", 50)
    assert (client.group, client.client_type, client.heard_ms) == ("g", 2, 50)


def test_topics_come_from_settings_and_from_calls() -> None:
    table = ClientTable()
    table.settings("c", said("", topics=("a",)), 0)
    table.uses("c", "b", 1)
    client = table.settings("d", said("g", "orders"), 0)
    assert client.all_topics() == {"orders"}
    producer = table.get("c")
    assert producer is not None
    assert producer.all_topics() == {"a", "b"}
    assert ids(table.of_group("g")) == ["d"]
    assert ids([table.uses("e", "orders", 2, "g")]) == ["e"]
    assert ids(table.of_group("g")) == ["d", "e"]


def test_a_goodbye_forgets_at_once() -> None:
    table = ClientTable()
    table.settings("c", said("g", "orders"), 0)
    gone = table.terminated("c")
    assert gone is not None
    assert gone.subscriptions
    assert table.terminated("c") is None
    assert table.of_group("g") == []
    table.stream_lost("c", 1)
    assert table.get("c") is None, "the end of its stream does not bring it back"


def test_there_is_room_for_so_many_clients() -> None:
    table = ClientTable(clients_max=2)
    for now_ms, client_id in enumerate(("a", "b", "a", "c")):
        table.heartbeat(client_id, 1, "g", now_ms)
    assert sorted(client.client_id for client in table) == ["a", "c"], "b was heard of longest ago"
    assert table.evicted == 1
    assert ids(table.of_group("g")) == ["a", "c"]


def test_topics_of_a_client_are_bounded() -> None:
    table = ClientTable()
    for number in range(TOPICS_PER_CLIENT_MAX + 5):
        table.uses("c", f"t{number}", 0)
    client = table.get("c")
    assert client is not None
    assert len(client.topics) == TOPICS_PER_CLIENT_MAX
    assert table.describe() == "1 clients, 0 streams, 0 groups, 0 evicted"
