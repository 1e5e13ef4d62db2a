"""One cluster for all garbage: the next piece is thrown at what survived the last."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from garbage.victim import Victim
from official.doors import door_flags
from razzo_cluster import Cluster


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    cluster = Cluster(tmp_path_factory.mktemp("garbage"), extra=door_flags())
    try:
        yield Victim(cluster.start())
        code = cluster.stop()
        assert code == 0, cluster.describe(f"`razzo up` ended with {code}")
    finally:
        cluster.terminate()
