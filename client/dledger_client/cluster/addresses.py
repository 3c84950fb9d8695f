"""How servers are named on a command line: HOST:PORT, with the member's id in front or without."""

from collections.abc import Iterable
from dataclasses import dataclass
from re import fullmatch
from typing import Final

from dledger_client.errors import AddressError
from dledger_formats.settings import MEMBER_ID_PATTERN

SERVERS_MAX: Final = 64
PORT_MAX: Final = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress:
    """Where a member listens; `member_id` is None until it is known."""

    host: str
    port: int
    member_id: str | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_server(text: str) -> ServerAddress:
    """Read `HOST:PORT`, `ID=HOST:PORT`, or DLedger's own `n0-HOST:PORT`; AddressError otherwise.

    A host may contain dashes (`orders-master`), so only an `n` with digits before the first dash
    counts as an id; for a host that is really named so, write `=n0-host:port`.
    """
    member_id, equals, rest = text.strip().partition("=")
    if not equals:
        match = fullmatch(r"(?:(n\d{1,9})-)?(.+)", member_id)
        member_id, rest = (match[1] or "", match[2]) if match else ("", "")
    host, _, port = rest.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdigit() and 0 < int(port) <= PORT_MAX):
        raise AddressError(f"{text!r} is no server: HOST:PORT or ID=HOST:PORT is expected")
    if member_id and not MEMBER_ID_PATTERN.fullmatch(member_id):
        raise AddressError(f"{text!r} names no member's id; letters, digits and _ are allowed")
    return ServerAddress(host=host, port=int(port), member_id=member_id or None)


def parse_servers(texts: Iterable[str]) -> list[ServerAddress]:
    """Read servers, several in one text being separated by `,` or `;`; at least one is needed."""
    parts = [part for text in texts for part in text.replace(";", ",").split(",") if part.strip()]
    if not 0 < len(parts) <= SERVERS_MAX:
        raise AddressError(f"{len(parts)} servers are given; 1 to {SERVERS_MAX} are allowed")
    return [parse_server(part) for part in parts]
