"""How servers are named."""

import pytest

from dledger_client.cluster.addresses import SERVERS_MAX, ServerAddress, parse_server, parse_servers
from dledger_client.errors import AddressError


@pytest.mark.parametrize(
    ("text", "member_id", "host", "port"),
    [
        ("10.0.0.1:40911", None, "10.0.0.1", 40911),
        ("orders-master:40911", None, "orders-master", 40911),
        ("orders-master.ns.svc:40911", None, "orders-master.ns.svc", 40911),
        ("n0-localhost:20911", "n0", "localhost", 20911),
        ("n12-orders-0.orders-nodes:20911", "n12", "orders-0.orders-nodes", 20911),
        ("a=localhost:1", "a", "localhost", 1),
        ("n0=n1-host:1", "n0", "n1-host", 1),
        ("=n1-host:1", None, "n1-host", 1),
        ("[::1]:40911", None, "::1", 40911),
        ("n0=[::1]:40911", "n0", "::1", 40911),
        ("n0=2001:db8::1:40911", "n0", "2001:db8::1", 40911),  # as some members' settings have it
        (" host:65535 ", None, "host", 65535),
    ],
)
def test_a_valid_server_address_is_parsed(
    text: str, member_id: str | None, host: str, port: int
) -> None:
    assert parse_server(text) == ServerAddress(host=host, port=port, member_id=member_id)


@pytest.mark.parametrize(
    "text", ["", "host", "host:", ":1", "n0-:1", "host:0", "host:65536", "host:x", "a b=host:1",
     "x..y:1", f"{'a' * 64}.example:1"],
)  # fmt: skip
def test_an_invalid_server_address_is_rejected(text: str) -> None:
    with pytest.raises(AddressError):
        parse_server(text)


@pytest.mark.parametrize("text", ["::1", "fe80::1", "n0=::1", "a:1:2"])
def test_an_address_without_brackets_or_port_is_rejected_with_what_is_expected(text: str) -> None:
    with pytest.raises(AddressError, match=r"expected HOST:PORT, or \[HOST\]:PORT"):
        parse_server(text)


def test_commas_and_semicolons_separate_servers() -> None:
    servers = parse_servers(["n0-a:1;n1-b:2", "c:3, d:4"])

    assert [str(server) for server in servers] == ["a:1", "b:2", "c:3", "d:4"]


@pytest.mark.parametrize("texts", [[], [" , "], ["a:1,"] * (SERVERS_MAX + 1)])
def test_an_empty_or_too_long_list_of_servers_is_rejected(texts: list[str]) -> None:
    with pytest.raises(AddressError):
        parse_servers(texts)


def test_an_ipv6_address_is_formatted_with_brackets() -> None:
    assert str(parse_server("[::1]:40911")) == "[::1]:40911"
