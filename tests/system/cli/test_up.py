"""`razzo up`: its services live and die with it, messages outlive them, what stands in its way is said in a line."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from razzo_cluster import COMMANDS, Cluster, is_running, wait_until

RAZZO = str(COMMANDS / "razzo")
Factory = Callable[..., Cluster]


def children(cluster: Cluster) -> list[int]:
    return [cluster.pid(service) for service in cluster.ready["services"]]


def fill(cluster: Cluster) -> None:
    """A topic `t` with three messages and a group `g` at its beginning."""
    cluster.must("create-topic", "t", "--type", "fifo", "--queues", "2")
    cluster.must("create-group", "g", "--fifo", "--max-attempts", "4")
    cluster.must("produce", "t", "a", "b", "c", "--message-group", "m")
    cluster.must("reset-offset", "g", "t", "0")


def bodies(cluster: Cluster, count: int) -> list[str]:
    return [one["body"] for one in cluster.must("consume", "t", "--group", "g", "--max", str(count))["messages"]]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_everything_cleanly(cluster: Cluster, number: signal.Signals) -> None:
    pids = children(cluster)
    assert all(map(is_running, pids))
    host, _, port = cluster.endpoint.rpartition(":")
    os.kill(cluster.up_pid, number)
    assert cluster.wait() == 0
    assert not any(map(is_running, pids))
    with socket.create_server((host, int(port))):
        pass
    assert cluster.stderr() == ""


def test_a_restart_keeps_messages_settings_positions_and_addresses(cluster: Cluster) -> None:
    fill(cluster)
    assert bodies(cluster, 1) == ["a"]
    before = {name: state["client"]["port"] for name, state in cluster.ready["services"].items()}
    cluster.restart()
    assert {name: state["client"]["port"] for name, state in cluster.ready["services"].items()} == before
    (group,) = (one for one in cluster.must("groups")["groups"] if one["name"] == "g")
    assert (group["fifo"], group["max_attempts"]) == (True, 4)
    assert bodies(cluster, 2) == ["b", "c"]


def test_services_die_with_a_killed_parent_and_lose_nothing(cluster_factory: Factory) -> None:
    cluster = cluster_factory(flush="sync").start()
    fill(cluster)
    pids = children(cluster)
    cluster.kill()
    assert not any(map(is_running, pids))
    cluster.start()
    assert bodies(cluster, 3) == ["a", "b", "c"]
    assert cluster.stop() == 0


def test_a_dead_broker_without_restarts_ends_everything_with_exit_code_1(cluster_factory: Factory) -> None:
    cluster = cluster_factory(restarts=0).start()
    pids = children(cluster)
    os.kill(cluster.pid("broker"), signal.SIGKILL)
    assert cluster.wait() == 1
    assert not any(map(is_running, pids))
    (line,) = cluster.stderr().splitlines()
    assert line.startswith("razzo: the broker died (killed by SIGKILL)")


def test_a_dead_broker_is_started_again_where_it_was(cluster_factory: Factory) -> None:
    cluster = cluster_factory(flush="sync", restarts=2).start()
    fill(cluster)
    before = dict(cluster.ready["services"]["broker"])
    cluster.kill_broker()
    after = cluster.ready["services"]["broker"]
    assert after["pid"] != before["pid"]
    assert after["client"] == before["client"]
    cluster.must("produce", "t", "d", "--message-group", "m")
    assert bodies(cluster, 4) == ["a", "b", "c", "d"]
    assert cluster.stop() == 0


def test_a_dead_nameserver_is_started_again_and_knows_the_broker(cluster_factory: Factory) -> None:
    cluster = cluster_factory(restarts=1).start()
    fill(cluster)
    cluster.kill_service("nameserver")
    assert len(cluster.must("route", "t")["queues"]) == 2
    assert bodies(cluster, 3) == ["a", "b", "c"]
    assert cluster.stop() == 0


def run_up(*words: str, timeout_s: float = 30) -> subprocess.CompletedProcess[str]:
    return subprocess.run([RAZZO, "up", *words], capture_output=True, text=True, timeout=timeout_s, check=False)


def test_a_taken_port_is_said_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run_up("--data", str(tmp_path), "--port", port)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert f"port {port} of 127.0.0.1 is taken" in line


def test_a_data_directory_in_use_is_said_in_one_line(cluster: Cluster) -> None:
    done = run_up("--data", str(cluster.data), "--port", "0")
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert f"{cluster.data} is in use by another `razzo up` (process {cluster.up_pid})" in line
    assert cluster.must("topics") == {"topics": []}


def test_a_store_in_use_by_a_broker_of_its_own_is_said_in_one_line(tmp_path: Path, cluster: Cluster) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "broker").symlink_to(cluster.data / "broker")
    done = run_up("--data", str(tmp_path / "other"), "--port", "0")
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("razzo: the broker did not start")


def test_settings_reach_the_services(cluster_factory: Factory) -> None:
    cluster = cluster_factory(extra=["--set", "broker.broker_name=somebody"]).start()
    (broker,) = cluster.must("brokers")["brokers"]
    assert broker["broker_name"] == "somebody"
    assert cluster.stop() == 0


def test_a_setting_that_a_service_does_not_have_is_refused(tmp_path: Path) -> None:
    done = run_up("--data", str(tmp_path), "--port", "0", "--set", "broker.colour=blue")
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert "the broker did not start (exit code 2)" in line
    assert "--colour" in line


def test_topics_are_made_by_their_first_use_only_when_asked(cluster_factory: Factory) -> None:
    cluster = cluster_factory(auto_create_topics=True).start()
    cluster.must("produce", "made-up", "x")
    assert [topic["name"] for topic in cluster.must("topics")["topics"]] == ["made-up"]
    assert cluster.stop() == 0


def test_what_it_says_to_people_works(tmp_path: Path) -> None:
    """The commands and the Python program in the text of `razzo up` do what they say."""
    command = [RAZZO, "up", "--data", str(tmp_path / "data"), "--port", "0"]
    up = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert up.stdout is not None
    text = ""
    try:
        # The snippets end with the last line of the Node program.
        while "producer.shutdown();" not in text:
            line = up.stdout.readline()
            assert line, f"ended early: {text}{up.communicate()[1]}"
            text += line
        commands = [line.strip() for line in text.splitlines() if "razzo admin --endpoint" in line]
        assert len(commands) == 4
        for words in commands:
            done = subprocess.run(words, shell=True, capture_output=True, text=True, timeout=30, check=False)
            assert done.returncode == 0, done
        assert "hello" in done.stdout
        program = textwrap.dedent(text.partition("--- Python")[2].partition("\n")[2].partition("---")[0])
        environment = {**os.environ, "HOME": str(tmp_path)}  # the official SDK logs there
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=60, check=False
        )
        assert done.returncode == 0, done
        endpoint = commands[0].split()[3]
        consume = [RAZZO, "admin", "--endpoint", endpoint, "message", done.stdout.split()[-1]]
        assert "hello" in subprocess.run(consume, capture_output=True, text=True, check=True).stdout
    finally:
        up.send_signal(signal.SIGINT)
        code = up.wait(30)
        up.stdout.close()
    assert code == 0


def seconds(*command: str) -> float:
    """The shortest of a few runs: what the command itself takes, whatever else this machine does."""
    best = float("inf")
    for _ in range(4):
        started = time.perf_counter()
        subprocess.run(command, capture_output=True, check=False)
        best = min(best, time.perf_counter() - started)
    return best


def test_start_up_is_little_more_than_the_libraries(shared_cluster: Cluster) -> None:
    """As ratios, because machines differ: help costs about what click does, a command what grpc and protobuf do."""
    click = seconds(sys.executable, "-c", "import click")
    libraries = "import click, grpc, apache.rocketmq.v2.service_pb2_grpc, razzo.v1.admin_pb2_grpc"
    grpc = seconds(sys.executable, "-c", libraries)
    help_ratio = seconds(RAZZO, "--help") / click
    admin_ratio = seconds(RAZZO, "admin", "--endpoint", shared_cluster.endpoint, "topics") / grpc
    print(f"help {help_ratio:.2f} x click, admin topics {admin_ratio:.2f} x grpc and protobuf")
    assert help_ratio < 2.5
    assert admin_ratio < 2.5


def test_a_log_of_each_service(cluster: Cluster) -> None:
    for service, state in cluster.ready["services"].items():
        assert Path(state["log"]) == cluster.data / "logs" / f"{service}.log"
    wait_until(lambda: cluster.log("broker") and cluster.log("nameserver"), message="both services logged something")
