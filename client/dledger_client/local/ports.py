"""Checks that the ports of a local group are free, and names the processes that use them."""

import socket
from collections.abc import Sequence

from dledger_client.local.errors import LocalGroupError
from dledger_client.local.folder import LOCK_FILE
from dledger_client.local.processes import (
    how_to_stop,
    listening_on,
    parent_with_same,
    process_name,
)


def require_ports_apart(ports: Sequence[int], broker_ports: Sequence[int]) -> None:
    """Raise LocalGroupError if the members and their brokers would need the same port."""
    both = sorted({*ports} & {*broker_ports})
    if both:
        raise LocalGroupError(
            f"--port and --broker-port both need the port {both[0]}: the members have the ports "
            f"{min(ports)} to {max(ports)}, and their brokers {min(broker_ports)} to "
            f"{max(broker_ports)}; choose others for one of them"
        )


def require_free_ports(host: str, ports: Sequence[int], option: str) -> None:
    """Raise LocalGroupError if a port of the host is in use; `option` sets these ports."""
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the member will
            try:
                probe.bind((host, port))
            except OSError as error:
                by = _users(listening_on(ports))
                raise LocalGroupError(
                    f"cannot listen on port {port}: {error.strerror}{by} choose other ports with "
                    f"{option}"
                ) from error


def _users(pids: Sequence[int]) -> str:
    """Return which processes use ports, and how to stop them, to be followed by other advice.

    A running group restarts its members, so the group is named in their place.
    """
    if not pids:
        return ";"
    groups = {pid: parent_with_same(LOCK_FILE, pid) for pid in pids}
    names = [
        process_name(pid) if group is None else f"the local group of {process_name(group)}"
        for pid, group in groups.items()
    ]
    to_stop = sorted({group or pid for pid, group in groups.items()})
    return f" by {', '.join(dict.fromkeys(names))}; {how_to_stop(to_stop)}, or"
