"""Addresses, and lists of members in DLedger's form: `n0-host:port;n1-host:port`."""

import re
from collections.abc import Mapping
from typing import Final

MEMBER_ID_PATTERN: Final = re.compile(r"[A-Za-z0-9_]{1,32}")


class PeersError(ValueError):
    """A text is not a list of members. The message quotes the wrong part."""


def split_address(address: str) -> tuple[str, int]:
    """Split `host:port`, which has been validated, into host and port. The brackets of an IPv6
    address are not part of the host.
    """
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def format_peers(peers: Mapping[str, str]) -> str:
    """Write a list of members in DLedger's form: `n0-host:port;n1-host:port`."""
    return ";".join(f"{peer_id}-{address}" for peer_id, address in peers.items())


def parse_peers(text: str) -> dict[str, str]:
    """Read a list of members in DLedger's form; ids end at the first `-`. Raises PeersError."""
    peers: dict[str, str] = {}
    for part in filter(None, text.split(";")):
        peer_id, dash, address = part.partition("-")
        host, colon, port = address.rpartition(":")
        if not (dash and colon and host and MEMBER_ID_PATTERN.fullmatch(peer_id)):
            raise PeersError(f"{part!r} is not a member; the form is ID-HOST:PORT")
        if not (re.fullmatch(r"[0-9]{1,5}", port) and 0 < int(port) < 65536):
            raise PeersError(f"{part!r} has no port between 1 and 65535")
        if peer_id in peers:
            raise PeersError(f"the member {peer_id} is listed twice")
        peers[peer_id] = address
    return peers
