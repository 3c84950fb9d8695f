"""The faults that a leader suffers, and waiting until the group has recovered from them."""

import contextlib
import http.client
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Final, TypeAlias

from dledger_client.sync import BlockingClient
from dledger_formats.http.status import NodeStatus
from tools.groups.namespaces import CuttableGroup
from tools.groups.node_group import NodeGroup
from tools.groups.waiting import wait_for

Fault: TypeAlias = Callable[[CuttableGroup, str], AbstractContextManager[None]]


def suffer(group: CuttableGroup, fault: str, leader: str) -> None:
    """Apply a fault to the leader until another member leads, then undo it."""
    with FAULTS[fault](group, leader):
        _wait_for_leader_among(group, [member for member in group.peers if member != leader])


@contextlib.contextmanager
def _kill(group: CuttableGroup, leader: str) -> Iterator[None]:
    group.kill(leader)
    try:
        yield
    finally:
        group.start(leader)


@contextlib.contextmanager
def _freeze(group: CuttableGroup, leader: str) -> Iterator[None]:
    group.freeze(leader)
    try:
        yield
    finally:
        group.thaw(leader)


@contextlib.contextmanager
def _transfer(group: CuttableGroup, leader: str) -> Iterator[None]:
    successor = next(member for member in group.peers if member != leader)
    with BlockingClient(group.servers, "g") as client:
        client.transfer(successor)
    yield


def _cut(*, out: bool, into: bool) -> Fault:
    @contextlib.contextmanager
    def cut(group: CuttableGroup, leader: str) -> Iterator[None]:
        others = [member for member in group.peers if member != leader]
        with contextlib.ExitStack() as cuts:
            if out:
                cuts.enter_context(group.cut([leader], others))
            if into:
                cuts.enter_context(group.cut(others, [leader]))
            yield

    return cut


FAULTS: Final[dict[str, Fault]] = {
    "kill": _kill,
    "transfer": _transfer,
    "freeze": _freeze,
    "cut-out": _cut(out=True, into=False),
    "cut-in": _cut(out=False, into=True),
    "cut-both": _cut(out=True, into=True),
}


def _wait_for_leader_among(group: NodeGroup, members: list[str]) -> str:
    """Wait until one of these members leads and all of them name it; return its id."""

    def agreed() -> str | None:
        found = views(group, members)
        leaders = {view.leader_id for view in found}
        masters = {view.self_id for view in found if view.master}
        agree = len(found) == len(members) and len(leaders) == 1 and leaders == masters
        return masters.pop() if agree else None

    return wait_for(agreed, f"one of {members} leads")


def wait_until_in_order(group: NodeGroup) -> str:
    """Wait until every member is ready and follows the same leader; return its id."""

    def ready() -> str | None:
        leader = _wait_for_leader_among(group, list(group.peers))
        is_ready = all(view.ready for view in views(group, list(group.peers)))
        return leader if is_ready else None

    return wait_for(ready, "all members are ready")


def views(group: NodeGroup, members: list[str]) -> list[NodeStatus]:
    """Return the status of each of these members that answers."""
    found = []
    for member in members:
        with contextlib.suppress(OSError, http.client.HTTPException):
            found.append(group.status(member))
    return found
