"""Fixtures that start the real thing: see razzo_cluster.py for what a Cluster can do."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from razzo_cluster import Cluster

_numbers = itertools.count(1)


@pytest.fixture
def cluster_factory(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    """Makes clusters (not started), each with a data directory of its own; all are gone after the test."""
    made: list[Cluster] = []

    def make(**settings: Any) -> Cluster:
        data = settings.pop("data", tmp_path / f"cluster-{len(made)}")
        made.append(Cluster(data, **settings))
        return made[-1]

    yield make
    for cluster in made:
        cluster.terminate()


@pytest.fixture
def cluster(cluster_factory: Callable[..., Cluster]) -> Iterator[Cluster]:
    """A started cluster of the test's own; its stop must be clean."""
    cluster = cluster_factory().start()
    yield cluster
    if cluster.running:
        code = cluster.stop()
        assert code == 0, cluster.describe(f"`razzo up` ended with {code}")


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One started cluster for all tests that only add topics and groups of their own names."""
    cluster = Cluster(tmp_path_factory.mktemp("shared-cluster")).start()
    yield cluster
    code = cluster.stop() if cluster.running else -1
    cluster.terminate()
    assert code == 0, cluster.describe(f"the shared `razzo up` ended with {code}")


@pytest.fixture(scope="session")
def unique() -> Callable[[str], str]:
    """Names that no other test of the session uses."""
    return lambda prefix: f"{prefix}-{next(_numbers)}"
