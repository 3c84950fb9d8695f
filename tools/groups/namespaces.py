"""A group whose members run in separate network namespaces, between which links can be cut.

    bridge 198.18.0.1 (the caller) ─── n0 198.18.0.10 · n1 198.18.0.11 · n2 198.18.0.12

A cut works in one direction. It is a rule in the receiver's namespace that silently drops packets
from the sender's address, as a broken cable or a firewall would. All of this is inside the caller's
own network and mount namespaces (`enter_own_namespaces`): it disappears with the caller, and never
changes the machine's network.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import product

from tools.groups.node_group import NodeGroup

_OWN = "DLEDGER_TEST_OWN_NAMESPACES"
_BRIDGE_ADDRESS = "198.18.0.1"
_FIRST_HOST = 10
# The kernel applies rules in ascending order of preference. Its own rule for local addresses has
# preference 0 and would come before any cut, so it is moved after them.
_CUTS, _LOCAL = "10", "20"


def enter_own_namespaces() -> None:
    """Re-execute this program in its own namespaces, unless it already runs in them; needs root."""
    if os.environ.get(_OWN):
        return
    os.environ[_OWN] = "yes"
    arguments = ["--net", "--mount", "--propagation", "private", sys.executable]
    os.execvp("unshare", ["unshare", *arguments, *sys.orig_argv[1:]])


class CuttableGroup(NodeGroup):
    """A group whose members are hosts on the network that `lay_network` sets up."""

    def host(self, member: str) -> str:
        """Return the address of the member's namespace."""
        return _address(member)

    def command(self, member: str) -> list[str]:
        """Return a command that enters the member's namespace and then becomes the node."""
        return ["nsenter", f"--net=/run/netns/{member}", *super().command(member)]

    @contextlib.contextmanager
    def cut(self, senders: list[str], receivers: list[str]) -> Iterator[None]:
        """Drop all packets from the senders to the receivers; the caller reaches all of them."""
        # A rule that cannot be added or deleted must not leave the others in place.
        with contextlib.ExitStack() as rules:
            for sender, receiver in product(senders, receivers):
                self._rule("add", sender, receiver)
                rules.callback(self._rule, "delete", sender, receiver)
            yield

    def _rule(self, what: str, sender: str, receiver: str) -> None:
        _ip(
            *("-netns", receiver, "rule", what, "preference", _CUTS),
            *("from", self.host(sender), "blackhole"),
        )


def lay_network(members: int = 3) -> None:
    """Set up the bridge and the members' namespaces; call this once in a program."""
    os.makedirs("/run/netns", exist_ok=True)
    _run("mount", "-t", "tmpfs", "tmpfs", "/run/netns")
    _ip("link", "set", "lo", "up")
    _ip("link", "add", "bridge", "type", "bridge")
    _ip("address", "add", f"{_BRIDGE_ADDRESS}/24", "dev", "bridge")
    _ip("link", "set", "bridge", "up")
    _ip("route", "add", "unreachable", "198.18.0.0/15")
    for number in range(members):
        _lay_link(f"n{number}", _address(f"n{number}"))


def _address(member: str) -> str:
    return f"198.18.0.{_FIRST_HOST + int(member[1:])}"


def _lay_link(member: str, address: str) -> None:
    _ip("netns", "add", member)
    _ip("link", "add", member, "type", "veth", "peer", "name", "eth0", "netns", member)
    _ip("link", "set", member, "master", "bridge", "up")
    for words in (
        "link set lo up",
        f"address add {address}/24 dev eth0",
        "link set eth0 up",
        "route add unreachable 198.18.0.0/15",
        f"rule add preference {_LOCAL} lookup local",
        "rule delete preference 0 lookup local",
    ):
        _ip("-netns", member, *words.split())
    # With early demultiplexing, packets of open connections would bypass the rules.
    switch = "echo 0 > /proc/sys/net/ipv4/tcp_early_demux"
    _run("nsenter", f"--net=/run/netns/{member}", "sh", "-c", switch)


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(*command: str) -> None:
    subprocess.run(command, check=True)
