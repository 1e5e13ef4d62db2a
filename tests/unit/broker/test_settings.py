"""The broker's settings: refusals that are its own, addresses, and that the help shows every one."""

from __future__ import annotations

import socket

import pytest

from razzo.broker.main import store_settings
from razzo.broker.settings import BrokerSettings, FlushChoice
from razzo.runtime.settings import SettingsError, declared, help_text, load
from razzo.storage import FlushMode, StoreSettings


def test_the_defaults_are_the_stores():
    made, default = store_settings(BrokerSettings()), StoreSettings()
    for name in ("commit_log_file_bytes", "consume_queue_file_units", "index_slots", "index_units", "retention_hours"):
        assert getattr(made, name) == getattr(default, name), name
    assert made.flush_mode is FlushMode.SYNC
    assert store_settings(BrokerSettings(flush_mode=FlushChoice.ASYNC)).flush_mode is FlushMode.ASYNC


@pytest.mark.parametrize("nameservers", ["a", "a:", ":1", "a:b", "a:0", "a:70000", "a:1,b"])
def test_addresses_of_nameservers_are_checked(nameservers):
    with pytest.raises(SettingsError, match="host:port"):
        load(BrokerSettings, [f"--nameservers={nameservers}"], {})


def test_flags_and_environment():
    settings = load(
        BrokerSettings,
        ["--nameservers=a:1, b:2", "--flush-mode=async", "--auto-create-topics"],
        {"RAZZO_BROKER_BROKER_NAME": "b1"},
    )
    assert settings.nameservers == ("a:1", "b:2")
    assert (settings.flush_mode, settings.auto_create_topics, settings.broker_name) == (FlushChoice.ASYNC, True, "b1")


@pytest.mark.parametrize("flag", ["--client-port=70000", "--broker-id=1", "--topics-max=0", "--flush-mode=perhaps"])
def test_ranges(flag):
    with pytest.raises(SettingsError):
        load(BrokerSettings, [flag], {})


@pytest.mark.parametrize(
    ("settings", "client", "peer"),
    [
        (BrokerSettings(), "127.0.0.1", "127.0.0.1"),
        (BrokerSettings(client_host="10.0.0.1", peer_host="10.0.0.2"), "10.0.0.1", "10.0.0.2"),
        (BrokerSettings(client_host="0.0.0.0", peer_host="::"), socket.gethostname(), socket.gethostname()),
        (BrokerSettings(advertise_host="b.example"), "b.example", "b.example"),
        (BrokerSettings(advertise_host="b.example", peer_advertise_host="in"), "b.example", "in"),
    ],
)
def test_advertised_addresses(settings, client, peer):
    assert (settings.client_address, settings.peer_address) == (client, peer)


def test_help_names_every_setting():
    text = help_text(BrokerSettings)
    for item in declared(BrokerSettings):
        assert f"  {item.flag}" in text
        assert item.spec.help in text
