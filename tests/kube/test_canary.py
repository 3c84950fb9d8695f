"""Tests with canaries: what is counted, told and asked, whatever the master Service answers."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from dledger_formats.log import disk
from dledger_formats.log.canaries import CANARY_CHANNEL
from dledger_formats.protocol.codes import DLedgerResponseCode as Code
from dledger_formats.protocol.entry import DLedgerEntry
from dledger_formats.protocol.requests import AppendEntryResponse, GetEntriesResponse
from dledger_kube.objects import IMAGES, group_body
from dledger_operator.behaviors.canary.canary import (
    ACKNOWLEDGEMENT_LOST,
    CANARY_UNSUPPORTED,
    TEST_S_MAX,
    Canary,
)
from dledger_operator.behaviors.canary.readback import Acknowledged, Readback, judge
from dledger_operator.canary_metrics import CanaryMetrics
from dledger_operator.clients.canary_client import CanaryClient
from dledger_operator.clients.errors import CanaryUnsupportedError, MemberSilentError
from dledger_operator.spec.group import Group
from dledger_operator.spec.spec_reader import InvalidSpecError
from tools.groups.node_group import NodeGroup

Answer = AppendEntryResponse | GetEntriesResponse | Exception


def entry(
    index: int, term: int, *, magic: int = disk.NOOP, channel: int = CANARY_CHANNEL
) -> DLedgerEntry:
    return DLedgerEntry(
        body=b"", body_crc=0, chain_crc=0, channel=channel, index=index, magic=magic, pos=0,
        size=48, term=term,
    )  # fmt: skip


def appended(index: int, term: int = 1) -> AppendEntryResponse:
    return AppendEntryResponse(index=index, term=term)


def there(index: int, term: int = 1) -> GetEntriesResponse:
    return GetEntriesResponse(entries=[entry(index, term)])


@dataclass
class Service:
    """A master Service that gives these answers, one for each request; and a clock."""

    appends: list[Answer] = field(default_factory=list)
    reads: dict[int, list[Answer]] = field(default_factory=dict)
    read: list[int] = field(default_factory=list)
    now_s: float = 100.0

    async def append(self, namespace: str, group: str, identity: str) -> Any:
        assert (namespace, group, identity) == ("air", "flights", "ours")
        return self._given(self.appends)

    async def read_(self, _namespace: str, _group: str, index: int) -> Any:
        self.read.append(index)
        return self._given(self.reads[index])

    def _given(self, answers: list[Answer]) -> Answer:
        self.now_s += 0.01
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


@dataclass
class World:
    """A group that is tested, and what has been told about it."""

    service: Service
    spec: dict[str, Any]
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    events: list[str] = field(default_factory=list)
    terms: list[int] = field(default_factory=list)
    leader: object | None = "n0"

    def __post_init__(self) -> None:
        body = group_body()
        body["spec"] |= self.spec
        self.group = Group.from_body(body, IMAGES)
        self.namespace, self.name, self.identity = "air", "flights", "ours"
        self.history = self
        context = cast("Any", self)
        self.metrics = self
        self.canaries = CanaryMetrics(self.registry)
        self.canary = Canary(
            context, context, lambda note: self.events.append(note.reason), self.terms.append
        )
        self.canaries = _Requests(self.service)  # type: ignore[assignment]

    def clock(self) -> float:
        return self.service.now_s

    def count(self, name: str, **labels: str) -> float:
        labels = {"namespace": "air", "group": "flights", **labels}
        return self.registry.get_sample_value(f"dledger_canary_{name}", labels) or 0.0

    def available(self) -> float | None:
        labels = {"namespace": "air", "group": "flights"}
        return self.registry.get_sample_value("dledger_canary_available", labels)

    def tests(self, outcome: str) -> float:
        return self.count("tests_total", outcome=outcome)


class _Requests:
    def __init__(self, service: Service) -> None:
        self.append, self.read = service.append, service.read_


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the pauses between two tries pass on the clock of the Service."""
    monkeypatch.setattr("dledger_operator.behaviors.canary.canary.RETRY_S", 0.0)


def run(world: World) -> float | None:
    return asyncio.run(world.canary.run_once())


def test_a_group_without_a_canary_is_not_asked() -> None:
    world = World(Service(), {})

    assert run(world) is None
    assert [each.samples for each in world.registry.collect()] == [[], [], [], []]


@pytest.mark.parametrize("state", ["asleep", "without a leader so far"])
def test_a_group_that_cannot_take_appends_yet_is_not_asked(state: str) -> None:
    world = World(Service(), {"canary": {}, "hibernate": state == "asleep"})
    if state != "asleep":
        world.leader = None

    assert run(world) == 10.0
    assert world.tests("not_acknowledged") == 0


def test_a_canary_is_appended_and_read_back_and_the_one_before_it_again() -> None:
    service = Service(appends=[appended(7), appended(9)], reads={7: [there(7)], 9: [there(9)]})
    world = World(service, {"canary": {"interval": "30s"}})

    pause_s = run(world)
    assert pause_s is not None
    assert 29.9 < pause_s < 30.0
    run(world)

    assert service.read == [7, 9, 7]
    assert (world.tests("acknowledged"), world.count("available")) == (2, 1)
    assert world.count("seconds_count", operation="append") == 2
    assert world.count("seconds_count", operation="read") == 2
    assert world.count("lost_acknowledgements_total") == 0
    assert (world.events, world.terms) == ([], [1, 1])


def test_refusals_and_silence_are_repeated_until_an_append_is_acknowledged() -> None:
    service = Service(
        appends=[
            MemberSilentError("nobody"), AppendEntryResponse(code=Code.NOT_LEADER), appended(4)
        ],
        reads={4: [MemberSilentError("moving"), there(4)]},
    )  # fmt: skip
    world = World(service, {"canary": {}})

    run(world)

    assert (world.tests("acknowledged"), world.count("available")) == (1, 1)
    assert 0.02 < world.count("seconds_sum", operation="append") < 0.05


def test_a_group_that_acknowledges_nothing_in_time_is_not_available() -> None:
    world = World(Service(appends=[MemberSilentError("nobody")]), {"canary": {}})

    pause_s = run(world)

    assert pause_s is not None
    assert pause_s < 10.0 - TEST_S_MAX + 0.1
    assert (world.tests("not_acknowledged"), world.count("available")) == (1, 0)
    assert world.terms == []


def test_a_canary_that_cannot_be_read_is_not_lost() -> None:
    service = Service(appends=[appended(4)], reads={4: [MemberSilentError("gone")]})
    world = World(service, {"canary": {}})

    run(world)

    assert (world.tests("not_read"), world.count("available")) == (1, 0)
    assert world.count("lost_acknowledgements_total") == 0


GONE = [
    GetEntriesResponse(code=Code.INDEX_OUT_OF_RANGE),
    GetEntriesResponse(entries=[entry(7, 2)]),
    GetEntriesResponse(entries=[entry(7, 1, magic=disk.NORMAL)]),
    GetEntriesResponse(entries=[entry(7, 1, channel=0)]),
]


@pytest.mark.parametrize("answer", GONE)
def test_an_acknowledged_canary_that_is_gone_is_told_once(answer: GetEntriesResponse) -> None:
    service = Service(
        appends=[appended(7), appended(8, 2)],
        reads={7: [there(7), answer], 8: [there(8, 2)]},
    )
    world = World(service, {"canary": {}})

    for _ in range(3):
        run(world)

    assert world.events == [ACKNOWLEDGEMENT_LOST]
    assert world.count("lost_acknowledgements_total") == 1
    assert world.tests("lost") == 1


def test_a_canary_that_retention_removed_is_not_lost() -> None:
    removed = GetEntriesResponse(code=Code.INDEX_LESS_THAN_LOCAL_BEGIN)
    service = Service(
        appends=[appended(7), appended(900)], reads={7: [there(7), removed], 900: [there(900)]}
    )
    world = World(service, {"canary": {}})

    run(world)
    run(world)

    assert (world.events, world.tests("acknowledged")) == ([], 2)


def test_another_identity_begins_anew() -> None:
    """`store adopt` makes a group of what is left of another: it never acknowledged the canary."""
    service = Service(appends=[appended(7), appended(3)], reads={7: [there(7)], 3: [there(3)]})
    world = World(service, {"canary": {}})
    run(world)
    world.identity = "adopted"
    service.append = lambda *_: _given(appended(3))  # type: ignore[assignment, method-assign]
    world.canaries.append = service.append  # type: ignore[attr-defined]

    run(world)

    assert (service.read, world.events) == ([7, 3], [])


async def _given(answer: Answer) -> Answer:
    return answer


def test_an_earlier_release_is_told_once_and_says_nothing_about_the_group() -> None:
    world = World(Service(appends=[CanaryUnsupportedError("n0")]), {"canary": {}})

    run(world)
    run(world)

    assert world.events == [CANARY_UNSUPPORTED]
    assert (world.tests("unsupported"), world.tests("not_acknowledged")) == (2, 0)
    assert world.available() is None


def test_a_group_whose_canary_is_taken_away_has_no_series() -> None:
    world = World(Service(appends=[appended(7)], reads={7: [there(7)]}), {"canary": {}})
    run(world)
    body = group_body()
    world.group = Group.from_body(body, IMAGES)

    run(world)

    assert [each.samples for each in world.registry.collect()] == [[], [], [], []]


def test_a_group_that_goes_to_sleep_is_no_longer_shown_as_available_or_not() -> None:
    world = World(Service(appends=[appended(7)], reads={7: [there(7)]}), {"canary": {}})
    run(world)
    assert world.available() == 1.0
    body = group_body()
    body["spec"] |= {"canary": {}, "hibernate": True}
    world.group = Group.from_body(body, IMAGES)

    run(world)

    assert world.available() is None
    assert world.tests("acknowledged") == 1


def test_a_group_that_goes_back_to_an_earlier_release_is_not_shown_as_available_or_not() -> None:
    answers: list[Answer] = [MemberSilentError("nobody")]
    world = World(Service(appends=answers), {"canary": {}})
    run(world)
    assert world.available() == 0.0

    answers[0] = CanaryUnsupportedError("n0")
    run(world)

    assert world.available() is None


@given(
    st.sampled_from(Code),
    st.lists(st.builds(entry, st.integers(6, 8), st.integers(0, 2)), max_size=1),
)
def test_no_refusal_is_taken_for_a_loss(code: Code, entries: list[DLedgerEntry]) -> None:
    found = judge(Acknowledged(7, 1), GetEntriesResponse(code=code, entries=entries))

    proves = code in (Code.SUCCESS, Code.INDEX_OUT_OF_RANGE)
    assert proves or found in (Readback.UNKNOWN, Readback.REMOVED)
    same = bool(entries) and (entries[0].index, entries[0].term) == (7, 1)
    assert (found is Readback.THERE) == (code is Code.SUCCESS and same)


@pytest.mark.parametrize("interval", ["999ms", "3601s", "soon"])
def test_an_interval_out_of_bounds_is_refused(interval: str) -> None:
    body = group_body()
    body["spec"]["canary"] = {"interval": interval}

    with pytest.raises(InvalidSpecError, match=r"canary\.interval"):
        Group.from_body(body, IMAGES)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[NodeGroup]:
    with NodeGroup(tmp_path) as group:
        yield group


def service_to(group: NodeGroup, member: Callable[[], str]) -> CanaryClient:
    def address(_namespace: str, _name: str) -> tuple[str, int]:
        host, _, port = group.peers[member()].rpartition(":")
        return host, int(port)

    return CanaryClient(address)


@pytest.mark.group
async def test_canaries_of_real_members_outlast_a_killed_leader(nodes: NodeGroup) -> None:
    client = service_to(nodes, lambda: target)
    target = nodes.master()
    first = await client.append("air", "g", "")
    assert first.code is Code.SUCCESS
    nodes.kill(target)
    with pytest.raises(MemberSilentError):
        await client.append("air", "g", "")
    target = nodes.master()

    second = await client.append("air", "g", "")

    assert second.index > first.index
    assert second.term > first.term
    for each in (first, second):
        found = judge(
            Acknowledged(each.index, each.term), await client.read("air", "g", each.index)
        )
        assert found is Readback.THERE
    beyond = await client.read("air", "g", second.index + 1000)
    assert judge(Acknowledged(second.index + 1000, 1), beyond) is Readback.LOST
    target = min(set(nodes.running()) - {target})
    with pytest.raises(MemberSilentError, match="the leader is"):
        await client.append("air", "g", "")
