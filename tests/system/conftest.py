"""Fixtures that start the real thing: see razzo_cluster.py for what a Cluster can do."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from razzo_cluster import Cluster

_numbers = itertools.count(1)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows what its clusters logged."""
    report = yield
    if report.failed:
        values = list(getattr(item, "funcargs", {}).values())
        clusters = [value for value in values if isinstance(value, Cluster)]
        clusters += [cluster for value in values if isinstance(value, Factory) for cluster in value.made]
        for cluster in dict.fromkeys(clusters):
            report.sections.append((f"logs of {cluster.data}", cluster.describe("")))
    return report


class Factory:
    """Makes clusters (not started), each with a data directory of its own below `folder`."""

    def __init__(self, folder: Path) -> None:
        self.made: list[Cluster] = []
        self._folder = folder

    def __call__(self, **settings: Any) -> Cluster:
        data = settings.pop("data", self._folder / f"cluster-{len(self.made)}")
        self.made.append(Cluster(data, **settings))
        return self.made[-1]


@pytest.fixture
def cluster_factory(tmp_path: Path) -> Iterator[Factory]:
    """Makes clusters; all are gone after the test."""
    factory = Factory(tmp_path)
    yield factory
    for cluster in factory.made:
        cluster.terminate()


@pytest.fixture
def cluster(cluster_factory: Factory) -> Iterator[Cluster]:
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
