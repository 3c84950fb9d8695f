"""The node's settings: reading them from the environment, and refusing invalid ones."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_formats.http.status import FlushDiskType
from dledger_formats.peers import PeersError, format_peers, parse_peers
from dledger_formats.settings import (
    GroupState,
    NodeSettings,
    OnDamage,
    SettingsError,
    variable_name,
)

PEERS = {"n0": "orders-0.orders-nodes:40911", "n1": "10.0.0.2:40911", "n2": "[::1]:40913"}
SETTINGS = NodeSettings(group="orders", self_id="n0", peers=PEERS, store_base_dir="/data")
ENVIRONMENT = SETTINGS.to_environment()

HOSTS = st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,20}[a-z0-9])?", fullmatch=True)
ADDRESSES = st.builds("{}:{}".format, HOSTS, st.integers(1, 65535))
GROUPS = st.dictionaries(st.from_regex(r"[A-Za-z0-9_]{1,32}", fullmatch=True), ADDRESSES)


@given(
    peers=GROUPS.filter(bool),
    http_port=st.integers(1, 65535),
    heartbeat_interval_ms=st.integers(20, 60_000),
    flush_disk_type=st.sampled_from(FlushDiskType),
    on_damage=st.sampled_from(OnDamage),
    segment_size_bytes=st.integers(4096, 1 << 40),
    pending_requests_max=st.integers(1, 1_000_000),
    client_requests_per_s_max=st.integers(0, 1 << 31),
    client_bytes_per_s_max=st.integers(0, 1 << 62),
    client_pending_appends_max=st.integers(0, 1_000_000),
    log_format=st.sampled_from(["text", "json"]),
)
def test_settings_are_read_back_from_the_environment(peers: dict[str, str], **values: Any) -> None:
    values["election_timeout_ms"] = max(50, 2 * values["heartbeat_interval_ms"])
    given_settings = dataclasses.replace(SETTINGS, peers=peers, self_id=min(peers), **values)

    assert NodeSettings.from_environment(given_settings.to_environment()) == given_settings


def test_only_four_settings_have_no_default() -> None:
    names = ["group", "self_id", "peers", "store_base_dir"]
    environment = {variable_name(name): ENVIRONMENT[variable_name(name)] for name in names}

    assert NodeSettings.from_environment(environment) == SETTINGS


@pytest.mark.parametrize("name", ["group", "self_id", "peers", "store_base_dir"])
def test_a_missing_setting_without_a_default_is_named(name: str) -> None:
    environment = {key: text for key, text in ENVIRONMENT.items() if key != variable_name(name)}

    with pytest.raises(SettingsError, match=f"{variable_name(name)} is not set"):
        NodeSettings.from_environment(environment)


def test_a_misspelt_setting_is_refused_with_the_nearest_name() -> None:
    environment = ENVIRONMENT | {"DLEDGER_HEARTBEAT_INTERVAL": "100"}

    with pytest.raises(SettingsError, match="did you mean DLEDGER_HEARTBEAT_INTERVAL_MS"):
        NodeSettings.from_environment(environment)


def test_an_unknown_setting_is_refused_with_a_list_of_all_settings() -> None:
    with pytest.raises(SettingsError, match="the settings are DLEDGER_GROUP"):
        NodeSettings.from_environment(ENVIRONMENT | {"DLEDGER_ZZZZZZZZZZ": "1"})


def test_variables_without_the_prefix_are_ignored() -> None:
    environment = ENVIRONMENT | {"PATH": "/bin", "dledger_group": "x", "XDLEDGER_GROUP": "x"}

    assert NodeSettings.from_environment(environment) == SETTINGS


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("group", ""),
        ("group", "-orders"),
        ("group", "or ders"),
        ("group", "o" * 64),
        ("self_id", "n7"),
        ("http_port", "0"),
        ("http_port", "65536"),
        ("http_port", "http"),
        ("heartbeat_interval_ms", "1.5"),
        ("heartbeat_interval_ms", "0"),
        ("election_timeout_ms", "499"),
        ("flush_disk_type", "sync"),
        ("on_damage", "ignore"),
        ("segment_size_bytes", "-1"),
        ("segment_size_bytes", "4095"),
        ("index_segment_size_bytes", "33"),
        ("pending_requests_max", "0"),
        ("client_frame_bytes_max", "16777217"),
        ("connections_max", "0"),
        ("connections_per_address_max", "0"),
        ("log_format", "xml"),
        ("appends_to_followers", "ignore"),
        ("addable_peers", "n3"),
        ("addable_peers", "n1-elsewhere:1"),
        ("peers", ""),
        ("initial_group_state", "old"),
    ],
)
def test_an_invalid_value_is_refused_with_the_name_of_the_variable(name: str, text: str) -> None:
    with pytest.raises(SettingsError, match=variable_name(name)):
        NodeSettings.from_environment(ENVIRONMENT | {variable_name(name): text})


def test_addable_peers_have_the_same_form_as_peers() -> None:
    variables = {
        "DLEDGER_ADDABLE_PEERS": "n3-orders-3.orders-nodes:40911",
        "DLEDGER_SELF_ID": "n3",
        "DLEDGER_INITIAL_GROUP_STATE": "new",
    }
    found = NodeSettings.from_environment(ENVIRONMENT | variables)

    assert found.address == "orders-3.orders-nodes:40911"
    assert found.initial_group_state is GroupState.NEW
    assert list(found.known_peers) == ["n0", "n1", "n2", "n3"]
    assert NodeSettings.from_environment(found.to_environment()) == found


def test_a_group_has_at_most_as_many_members_as_a_membership_can_hold() -> None:
    addable = {f"m{number}": "h:1" for number in range(62)}
    with pytest.raises(SettingsError, match="too many members; at most 64"):
        dataclasses.replace(SETTINGS, addable_peers=addable)


def test_an_election_needs_more_than_one_heartbeat() -> None:
    with pytest.raises(SettingsError, match="at least twice DLEDGER_HEARTBEAT_INTERVAL_MS"):
        dataclasses.replace(SETTINGS, heartbeat_interval_ms=600, election_timeout_ms=1199)


def test_a_member_knows_its_own_address() -> None:
    assert SETTINGS.address == "orders-0.orders-nodes:40911"


# DLedger's form of the member list.


@given(GROUPS)
def test_peers_are_read_back_from_dledger_s_form(peers: dict[str, str]) -> None:
    assert parse_peers(format_peers(peers)) == peers


def test_dashes_in_a_host_name_belong_to_the_host() -> None:
    assert parse_peers("n0-my-host-0:40911") == {"n0": "my-host-0:40911"}


@pytest.mark.parametrize(
    "text",
    [
        "n0",
        "n0-",
        "n0-host",
        "n0-:40911",
        "-host:40911",
        "host:40911",
        "n0-host:",
        "n0-host:0",
        "n0-host:65536",
        "n0-host:" + "9" * 5000,
        "n0-host:port",
        "n.0-host:40911",
        "n0-host:40911;n0-host:40912",
    ],
)
def test_an_invalid_list_of_members_is_refused(text: str) -> None:
    with pytest.raises(PeersError):
        parse_peers(text)


def test_the_variables_of_the_command_line_are_not_settings() -> None:
    exported = {"DLEDGER_CLIENT_SERVERS": "127.0.0.1:40911", "DLEDGER_CLIENT_GROUP": "orders"}

    assert NodeSettings.from_environment(ENVIRONMENT | exported) == SETTINGS


@pytest.mark.parametrize("text", ["1_000", " 1000", "+1000", "\u0661", "1e3", ""])
def test_a_number_has_digits_only(text: str) -> None:
    environment = ENVIRONMENT | {"DLEDGER_HEARTBEAT_INTERVAL_MS": text}

    with pytest.raises(SettingsError, match="must be a whole number"):
        NodeSettings.from_environment(environment)
