"""The node's pages."""

import threading
import time

import pytest

from dledger_formats.http.status import LeaderView
from tools.groups.node_group import NodeGroup


def leader_view(group: NodeGroup, member: str, query: str = "") -> LeaderView:
    status, body = group.get(member, f"/leader{query}")
    assert status == 200
    return LeaderView.from_json(body)


def test_a_long_poll_with_an_old_view_is_answered_at_once(steady_group: NodeGroup) -> None:
    master = steady_group.master()

    began_s = time.monotonic()
    view = leader_view(steady_group, master, "?since=0:&wait=30s")

    assert view.leader_id == master
    assert time.monotonic() - began_s < 5


def test_a_long_poll_is_answered_when_the_leader_changes(group: NodeGroup) -> None:
    master = group.master()
    follower = next(member for member in group.running() if member != master)
    group.wait_for_status(follower, lambda view: view.leader_id == master, "follows the master")
    known = leader_view(group, follower).token
    threading.Timer(0.2, group.kill, [master]).start()

    view = leader_view(group, follower, f"?since={known}&wait=20s")

    assert view.token != known


def test_a_long_poll_is_answered_after_its_wait_when_nothing_changes(
    steady_group: NodeGroup,
) -> None:
    master = steady_group.master()
    known = leader_view(steady_group, master).token

    began_s = time.monotonic()
    view = leader_view(steady_group, master, f"?since={known}&wait=300ms")

    assert view.token == known
    assert 0.25 < time.monotonic() - began_s < 5


def test_a_malformed_wait_is_refused_with_an_example(steady_group: NodeGroup) -> None:
    status, body = steady_group.get(steady_group.master(), "/leader?since=0:&wait=soon")

    assert status == 400
    assert b"30s" in body


def test_a_member_without_a_majority_is_not_ready_and_reports_why(
    group: NodeGroup,
) -> None:
    master = group.master()
    assert group.get(master, "/readyz") == (200, b"ok\n")
    assert group.get(master, "/healthz") == (200, b"ok\n")

    for member in group.running():
        if member != master:
            group.kill(member)
    group.wait_for_status(master, lambda view: not view.ready, "is not ready")

    status, body = group.get(master, "/readyz")
    assert (status, b"no leader" in body) == (503, True)
    assert body.decode() == f"{group.status(master).reason}\n"


def test_the_metrics_contain_the_role_and_the_flushes(steady_group: NodeGroup) -> None:
    master = steady_group.master()

    status, body = steady_group.get(master, "/metrics")

    assert status == 200
    assert b'dledger_node_role{role="LEADER"} 1.0' in body
    assert b"dledger_node_flushes_total" in body


def test_the_metrics_tell_how_late_the_loop_is_and_what_its_turns_cost(
    steady_group: NodeGroup,
) -> None:
    lines = steady_group.get(steady_group.master(), "/metrics")[1].decode().splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))

    assert float(values["dledger_node_loop_lag_seconds_count"]) > 0
    assert float(values["dledger_node_loop_turn_processor_seconds_count"]) > 0
    assert float(values["dledger_node_loop_turn_processor_longest_seconds"]) > 0
    assert "# TYPE dledger_node_loop_lag_seconds histogram" in lines


def test_a_segment_is_served_by_range_up_to_the_committed_index(steady_group: NodeGroup) -> None:
    master = steady_group.master()
    file = steady_group.manifest(master).data[0]
    path = f"/segments/data/{file.name}"

    whole = steady_group.get(master, path)
    part = steady_group.get(master, path, {"Range": "bytes=8-15"})
    beyond = steady_group.get(master, path, {"Range": f"bytes={file.readable_bytes}-"})

    assert whole[0] == 200
    assert len(whole[1]) == file.readable_bytes < file.size_bytes
    assert part == (206, whole[1][8:16])
    assert beyond[0] == 416


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("at=0&size=0", b"size must be 1 to"),
        ("at=0&size=48&known=" + "00" * 47, b"known must be up to 16 headers of 48 bytes"),
        ("at=0&size=48&known=" + "00" * 48 * 17, b"known must be up to 16 headers of 48 bytes"),
        ("at=0&size=48&known=zz", b"hex"),
    ],
)
def test_a_malformed_request_for_stored_bytes_is_refused(
    steady_group: NodeGroup, query: str, why: bytes
) -> None:
    status, body = steady_group.get(steady_group.master(), f"/stored/{'0' * 20}?{query}")

    assert status == 400
    assert why in body


def test_an_unknown_file_is_not_found(steady_group: NodeGroup) -> None:
    master = steady_group.master()

    assert steady_group.get(master, "/segments/data/00000000009999999999")[0] == 404
    assert steady_group.get(master, "/segments/data/..%2f..%2fcurrterm")[0] == 404
    assert steady_group.get(master, "/segments/snapshot/00000000000000000000")[0] == 404
