"""The exchange with an official client on the shared cluster, as a fixture of the modules of each language."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from official.doors import door_flags
from official.exchange import Client, Place, compare, exchange
from official.manifest import BODY_BYTES_MAX, Manifest
from razzo_cluster import Cluster, wait_until

MESSAGE_COUNT = 1_000
QUEUES = 4
SETTLE_TIMEOUT_S = 20.0

Exchange = Callable[..., None]


def is_settled(cluster: Cluster, groups: set[str]) -> bool:
    """Whether the broker has every message of the groups' topics as acknowledged."""
    found = [group for group in cluster.must("groups")["groups"] if group["name"] in groups]
    positions: list[dict[str, Any]] = [position for group in found for position in group["positions"]]
    assert {group["name"] for group in found} == groups
    behind = [place for place in positions if place["outstanding"] or place["committed_offset"] < place["max_offset"]]
    return len(positions) >= len(groups) and not behind


@pytest.fixture(scope="session")
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The shared cluster, or one with the door that RAZZO_TEST_DOOR names."""
    if not door_flags():
        yield request.getfixturevalue("shared_cluster")
        return
    cluster = Cluster(tmp_path_factory.mktemp("official"), extra=door_flags())
    try:
        yield cluster.start()
        code = cluster.stop()
        assert code == 0, cluster.describe(f"`razzo up` ended with {code}")
    finally:
        cluster.terminate()


@pytest.fixture
def exchanged(served: Cluster, unique: Callable[[str], str], tmp_path: Path) -> Exchange:
    """Exchanges the manifest's messages through the shared cluster and compares them."""

    def run(client: Client, *, tls: bool = False, seed: int, largest_bytes: int = BODY_BYTES_MAX) -> None:
        place = Place(
            endpoint=served.tls_endpoint if tls else served.endpoint,
            plain=served.endpoint,
            tls=tls,
            topic=unique(f"official-{client.name}"),
            simple_group=unique(f"official-{client.name}-simple"),
            push_group=unique(f"official-{client.name}-push"),
        )
        served.must("create-topic", place.topic, "--queues", str(QUEUES))
        groups = {group for group in (place.simple_group, place.push_group) if group.endswith(client.modes)}
        for group in groups:
            served.must("create-group", group)
        manifest = Manifest(tmp_path, count=MESSAGE_COUNT, seed=seed, largest_bytes=largest_bytes)

        def settled() -> None:
            wait_until(lambda: is_settled(served, groups), SETTLE_TIMEOUT_S, "every message acknowledged")

        compare(client, place, manifest, exchange(client, place, manifest, tmp_path, settled))

    return run
