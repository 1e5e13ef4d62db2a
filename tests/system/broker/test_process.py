"""The broker as its operator runs it: a process, its ready line, its signals, and kill -9."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import grpc
import pytest
from broker.in_process import Code, MessageType, pb, resource

from apache.rocketmq.v2 import definition_pb2
from razzo.protocol import methods
from razzo.v1 import admin_pb2, config_pb2

COMMAND = Path(sys.executable).with_name("razzo-broker")
T, G = "orders", "billing"
METADATA = (("x-mq-client-id", "process-test"),)


class Process:
    def __init__(self, data, *flags):
        self.log = data.with_suffix(".log")
        with open(self.log, "ab") as errors:
            self.process = subprocess.Popen(
                [
                    COMMAND,
                    f"--data={data}",
                    "--client-port=0",
                    "--peer-port=0",
                    "--commit-log-file-bytes=16777216",
                    "--index-slots=1000",
                    "--index-units=4000",
                    *flags,
                ],
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        self.ready = {}

    def wait_ready(self):
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        self.ready = json.loads(line)
        self.client = grpc.insecure_channel(f"127.0.0.1:{self.ready['client']['port']}")
        self.peer = grpc.insecure_channel(f"127.0.0.1:{self.ready['peer']['port']}")
        return self

    def call(self, path, request, answer, channel=None):
        raw = (channel or self.client).unary_unary(path)(request.SerializeToString(), metadata=METADATA, timeout=5)
        return answer.FromString(raw)

    def put_topic(self):
        topic = config_pb2.TopicConfig(name=T, read_queues=1, write_queues=1)
        self.call(methods.PUT_TOPIC, admin_pb2.PutTopicRequest(topic=topic), admin_pb2.PutTopicResponse, self.peer)

    def subscribe(self):
        request = pb.QueryAssignmentRequest(topic=resource(T), group=resource(G))
        assert self.call(methods.QUERY_ASSIGNMENT, request, pb.QueryAssignmentResponse).status.code == Code.OK

    def send(self, body):
        message = definition_pb2.Message(topic=resource(T), body=body)
        message.system_properties.message_id = body.decode()
        message.system_properties.message_type = MessageType.NORMAL
        request = pb.SendMessageRequest(messages=[message])
        return self.call(methods.SEND_MESSAGE, request, pb.SendMessageResponse).status.code

    def take(self):
        request = pb.ReceiveMessageRequest(group=resource(G), batch_size=32, auto_renew=True)
        request.message_queue.topic.CopyFrom(resource(T))
        stream = self.client.unary_stream(methods.RECEIVE_MESSAGE)
        answers = stream(request.SerializeToString(), metadata=METADATA, timeout=0.8)
        answers = [pb.ReceiveMessageResponse.FromString(raw) for raw in answers]
        return [answer.message for answer in answers if answer.HasField("message")]

    def ack(self, messages):
        request = pb.AckMessageRequest(group=resource(G), topic=resource(T))
        for message in messages:
            request.entries.add(message_id="x", receipt_handle=message.system_properties.receipt_handle)
        assert self.call(methods.ACK_MESSAGE, request, pb.AckMessageResponse).status.code == Code.OK

    def end(self, signum, timeout_s=10):
        self.process.send_signal(signum)
        try:
            return self.process.wait(timeout_s)
        finally:
            self.process.stdout.close()


@pytest.fixture
def start(tmp_path):
    started = []

    def start(*flags):
        started.append(Process(tmp_path / "data", *flags))
        return started[-1].wait_ready()

    yield start
    for each in started:
        if each.process.poll() is None:
            each.end(signal.SIGKILL)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_ready_line_and_clean_stop(start, tmp_path, signum):
    broker = start("--broker-name=b1")
    assert broker.ready["event"] == "ready"
    assert (broker.ready["service"], broker.ready["name"]) == ("broker", "b1")
    assert broker.ready["client"]["tls_port"]
    begun = time.monotonic()
    assert broker.end(signum) == 0
    assert time.monotonic() - begun < 2
    assert not (tmp_path / "data" / "abort").exists()


def test_a_clean_stop_does_not_wait_for_waiting_receives(start):
    broker = start()
    broker.put_topic()
    request = pb.ReceiveMessageRequest(group=resource(G), batch_size=32, auto_renew=True)
    request.message_queue.topic.CopyFrom(resource(T))
    request.long_polling_timeout.seconds = 20
    stream = broker.client.unary_stream(methods.RECEIVE_MESSAGE)
    answers = stream(request.SerializeToString(), metadata=METADATA, timeout=23)
    telemetry = broker.client.stream_stream(methods.TELEMETRY)(iter(()), metadata=METADATA)
    assert telemetry.initial_metadata() is not None
    broker.subscribe()
    begun = time.monotonic()
    assert broker.end(signal.SIGTERM) == 0
    assert time.monotonic() - begun < 2
    first = pb.ReceiveMessageResponse.FromString(next(answers))
    assert first.status.code == Code.MESSAGE_NOT_FOUND


def test_kill_9_loses_nothing_that_was_answered(start):
    broker = start("--flush-mode=sync")
    broker.put_topic()
    broker.subscribe()
    sent, done = [], []
    for life in range(3):
        for n in range(30):
            assert broker.send(b"%d-%d" % (life, n)) == Code.OK
            sent.append(b"%d-%d" % (life, n))
        if life < 2:
            messages = broker.take()[:10]
            broker.ack(messages)
            done += [message.body for message in messages]
        broker.end(signal.SIGKILL)
        broker = start("--flush-mode=sync")
    first_look = {message.body for message in broker.take()}
    assert not first_look & set(done), "what was acknowledged stays so"
    reset = admin_pb2.ResetOffsetRequest(group=G, topic=T, timestamp_ms=0)
    broker.call(methods.RESET_OFFSET, reset, admin_pb2.ResetOffsetResponse, broker.peer)
    received = []
    while messages := broker.take():
        broker.ack(messages)
        received += [message.body for message in messages]
    assert received == sent


def test_a_second_broker_does_not_get_the_directory(start, tmp_path):
    start()
    second = Process(tmp_path / "data")
    assert second.process.wait(10) == 3
    second.process.stdout.close()
    assert "another process uses" in second.log.read_text()


def test_unknown_settings_are_refused(tmp_path):
    result = subprocess.run([COMMAND, "--no-such-setting=1"], capture_output=True, text=True, timeout=20)
    assert (result.returncode, result.stdout) == (2, "")
    assert "no-such-setting" in result.stderr
