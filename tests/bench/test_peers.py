"""The comparison with other systems, run with tiny loads against this project's own group."""

import itertools
import json
from pathlib import Path

import pytest

from bench.peers.__main__ import PEERS, main, run
from bench.peers.client import Client, ClientError
from bench.peers.dledger import DLedger
from bench.peers.gaps import first_new_ms, is_over, longest_gap_ms
from bench.peers.measurements import Figures, Log, Plan, measure
from bench.peers.peer import Description
from bench.peers.report import report_json, tables
from tools.groups.node_group import NodeGroup
from tools.groups.processes import MemberProcesses

MS = 10**6
TINY = Plan(
    idle_s=0.2,
    settle_s=0.0,
    kills=1,
    in_flight=(1, 64),
    append_s=0.2,
    logs=(Log("k1", 500, 1024), Log("b8", 1000, 8)),
    passes=1,
    warm_up_share=0.01,
)


def test_the_gap_is_the_longest_pause_that_ends_after_the_kill() -> None:
    ends_ms = [0, 900, 910, 1400, 1410]
    acknowledgements = [(end * MS, end * MS) for end in ends_ms]

    assert longest_gap_ms(acknowledgements, killed_ns=905 * MS) == 490


def test_the_first_new_acknowledgement_is_of_an_append_that_began_after_the_kill() -> None:
    began_before = (90 * MS, 300 * MS)
    began_after = (110 * MS, 350 * MS)

    assert first_new_ms([began_before, began_after], killed_ns=100 * MS) == 250


def test_a_failover_is_over_once_new_appends_have_been_acknowledged_for_two_seconds() -> None:
    old = [(90 * MS, 3000 * MS)]
    new = [(110 * MS, 400 * MS), (500 * MS, 2399 * MS)]

    assert not is_over(old, killed_ns=100 * MS)
    assert not is_over(old + new, killed_ns=100 * MS)
    assert is_over([*old, *new, (600 * MS, 2400 * MS)], killed_ns=100 * MS)


def test_a_client_that_does_not_answer_is_given_up_and_ended() -> None:
    def ask(client: Client) -> None:
        with client:
            client.ask("create", timeout_s=0.1)

    client = Client(["sleep", "60"], log=None)
    process = Path(f"/proc/{client.process_id}")

    with pytest.raises(ClientError, match="did not answer 'create' in time"):
        ask(client)

    assert not process.exists()


def test_an_error_of_the_client_names_the_request() -> None:
    answering = ["sh", "-c", """read line; echo '{"error": "no quorum"}'"""]

    with Client(answering, log=None) as client, pytest.raises(ClientError, match="fill: no quorum"):
        client.ask("fill")


def test_a_peer_that_is_not_built_is_skipped_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DLEDGER_CACHE", str(tmp_path))

    assert list(run(["kafka", "nats", "etcd"], TINY, str(tmp_path))) == []

    shown = capsys.readouterr().out
    for name in ("kafka", "nats", "etcd"):
        assert f"{name} is skipped: it is not built" in shown


@pytest.mark.group
def test_every_measurement_of_a_group_has_figures(tmp_path: Path) -> None:
    figures = measure(DLedger(), TINY, tmp_path)

    assert figures.failure is None
    assert figures.idle is not None
    assert figures.idle.own_mib > 0
    (failover,) = figures.failover
    assert 0 < failover.gap_ms < 60_000
    assert [row.in_flight for row in figures.appends] == [1, 64]
    assert all(row.per_second > 0 and row.failed == 0 for row in figures.appends)
    read = [(row.log, row.way) for row in figures.reads]
    assert read == list(
        itertools.product(["500 x 1024 B", "1,000 x 8 B"], DLedger.ways_to_read),
    )
    assert all(row.per_second > 0 for row in figures.reads)


@pytest.mark.group
def test_a_peer_whose_client_ends_is_reported_and_its_members_end(tmp_path: Path) -> None:
    members: list[Path] = []

    class WithoutClient(DLedger):
        def client_of(self, group: MemberProcesses) -> Client:
            assert isinstance(group, NodeGroup)
            members.extend(Path(f"/proc/{group.process_id(each)}") for each in group.running())
            return Client(["true"], log=None)

    figures = measure(WithoutClient(), TINY, tmp_path)

    assert "client program" in (figures.failure or "")
    assert len(members) == 3
    assert not any(member.exists() for member in members)


def test_an_interrupted_run_reports_the_peers_that_it_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Broken(DLedger):
        def group_in(self, folder: Path) -> NodeGroup:
            raise ClientError("no ports")

    def interrupted() -> DLedger:
        raise KeyboardInterrupt

    monkeypatch.setitem(PEERS, "kafka", Broken)
    monkeypatch.setitem(PEERS, "nats", interrupted)
    figures = tmp_path / "figures.json"

    with pytest.raises(KeyboardInterrupt):
        main(["--quick", "--peers", "kafka", "nats", "--json", str(figures)])

    assert "FAILED: ClientError: no ports" in capsys.readouterr().out
    assert len(json.loads(figures.read_text())["peers"]) == 1


def test_the_report_names_a_peer_that_failed() -> None:
    description = Description(name="other", promise="flushed", client="its own")
    failed = Figures(description=description, failure="no leader")

    assert "other FAILED: no leader" in list(tables([failed]))
    (told,) = json.loads(report_json({}, TINY, [failed]))["peers"]
    assert told["failure"] == "no leader"
