"""Server addresses: HOST:PORT, optionally with the member id."""

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv6Address
from re import fullmatch, search
from typing import Final

from dledger_client.errors import AddressError
from dledger_formats.peers import MEMBER_ID_PATTERN

SERVERS_MAX: Final = 64
PORT_MAX: Final = 65535
LABEL_BYTES_MAX: Final = 63
TEXT_SHOWN_MAX: Final = 80
"""Length to which a wrong address is cut in a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress:
    """Address of a member; `member_id` is None if it is unknown."""

    host: str
    port: int
    member_id: str | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_server(text: str) -> ServerAddress:
    """Parse `HOST:PORT`, `ID=HOST:PORT`, or DLedger's own form `n0-HOST:PORT`.

    A host may contain dashes (`orders-master`), so only `n` and digits before the first dash count
    as an id; for a host with such a name, write `=n0-host:port`. Raises AddressError for any other
    text.
    """
    shown = ascii(text[:TEXT_SHOWN_MAX])
    if "://" in text:
        scheme = text.partition("://")[0][:TEXT_SHOWN_MAX]
        raise AddressError(f"invalid server address {shown}: write HOST:PORT, without {scheme}://")
    member_id, equals, rest = text.strip().partition("=")
    if not equals:
        match = fullmatch(r"(?:(n\d{1,9})-)?(.+)", member_id)
        member_id, rest = (match[1] or "", match[2]) if match else ("", "")
    host, _, port = rest.rpartition(":")
    if ":" in host and not host.startswith("[") and not _is_ipv6(host):
        raise AddressError(
            f"invalid server address {shown}: expected HOST:PORT, or [HOST]:PORT for an IPv6 "
            "address"
        )
    is_bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if is_bracketed else host
    if not host or not (fullmatch("[0-9]{1,5}", port) and 0 < int(port) <= PORT_MAX):
        raise AddressError(
            f"invalid server address {shown}: expected HOST:PORT or ID=HOST:PORT, with a port of "
            f"1 to {PORT_MAX}"
        )
    if not _is_name(host):
        raise AddressError(
            f"invalid server address {shown}: {host[:TEXT_SHOWN_MAX]!a} is no host name: each part "
            f"between dots has 1 to {LABEL_BYTES_MAX} bytes, without spaces"
        )
    if member_id and not MEMBER_ID_PATTERN.fullmatch(member_id):
        raise AddressError(f"invalid member id in {shown}: only letters, digits and _ are allowed")
    return ServerAddress(host=host, port=int(port), member_id=member_id or None)


def _is_ipv6(host: str) -> bool:
    try:
        IPv6Address(host)
    except ValueError:
        return False
    return True


def _is_name(host: str) -> bool:
    """Return whether a host can be looked up as a name, which also holds for addresses."""
    if search(r"[\s\x00-\x1f\x7f\[\]]", host):
        return False
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return True


def parse_servers(texts: str | Iterable[str]) -> list[ServerAddress]:
    """Parse a text, or several, of addresses separated by `,` or `;`.

    Raises AddressError if an address is invalid or there is none at all, and TypeError for anything
    but texts.
    """
    if not isinstance(texts, Iterable):
        raise TypeError(f"servers must be a str or several, not {type(texts).__name__}")
    texts = [texts] if isinstance(texts, str) else list(texts)
    for text in texts:
        if not isinstance(text, str):
            raise TypeError(f"a server must be a str, not {type(text).__name__}")
    parts = [part for text in texts for part in text.replace(";", ",").split(",") if part.strip()]
    if not 0 < len(parts) <= SERVERS_MAX:
        raise AddressError(f"expected 1 to {SERVERS_MAX} servers, got {len(parts)}")
    return [parse_server(part) for part in parts]
