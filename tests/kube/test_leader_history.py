"""The history of a group's leaders, and the duration of each change."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from dledger_formats.http.status import StoodBecause
from dledger_kube.objects import NOW, leads, pod, says, silent
from dledger_operator.behaviors.leader.leader_history import LeaderHistory, PhaseTime
from dledger_operator.observed_state import Leader, LeaderChange, Victory

PODS = [pod(0), pod(1), pod(2)]
N0, N1 = Leader(term=6, member_id="n0"), Leader(term=7, member_id="n1")


def change_to(leader: Leader) -> LeaderChange:
    return LeaderChange(
        from_member="", to_member=leader.member_id, term=leader.term, reason="FirstLeader", at=NOW
    )


def led_by_n0() -> LeaderHistory:
    """A history in which n0 was observed as the leader."""
    history = LeaderHistory([change_to(N0)])
    history.proven(0.0, NOW, N0)
    return history


def times(*phases: tuple[PhaseTime, ...]) -> dict[str, float]:
    return {each.phase: round(each.seconds, 6) for group in phases for each in group}


def test_a_failover_is_timed_phase_by_phase() -> None:
    history = led_by_n0()
    history.observe(10.0, [silent(0, 6, "n0"), says(1, 6, "n0")], PODS)
    history.observe(10.4, [silent(0, 6, "n0"), says(1, 7)], PODS)
    elected = history.proven(10.9, NOW, N1)
    relabeled = history.relabeled(11.0)
    synced = history.endpoints_synced(11.2)

    assert times(elected, relabeled, synced) == {
        "detect": 0.4, "elect": 0.5, "relabel": 0.1, "endpoints": 0.2, "total": 1.2,
    }  # fmt: skip
    change, _ = history.changes
    assert (change.from_member, change.to_member, change.term) == ("n0", "n1", 7)
    assert change.reason == "LeaderLost"
    assert round(change.endpoints_s or 0, 6) == 0.2


def test_the_first_canary_of_a_new_leader_ends_the_pause_of_writes() -> None:
    history = led_by_n0()
    history.observe(10.0, [silent(0, 6, "n0"), says(1, 6, "n0")], PODS)
    history.proven(10.9, NOW, N1)

    assert history.wrote(11.0, N0.term) == (), "the old leader acknowledged it"
    assert times(history.wrote(11.5, N1.term)) == {"firstWrite": 1.5}
    assert history.wrote(12.0, N1.term) == ()
    assert round(history.changes[0].first_write_s or 0, 6) == 1.5


def test_a_canary_of_a_leader_found_at_the_start_times_nothing() -> None:
    history = LeaderHistory([change_to(N0)])
    history.proven(1.0, NOW, N1)

    assert history.wrote(2.0, N1.term) == ()
    assert LeaderHistory([]).wrote(2.0, 1) == ()


def test_a_passing_outage_does_not_count_as_a_failover() -> None:
    history = led_by_n0()
    history.observe(10.0, [silent(0, 6, "n0")], PODS)
    history.observe(11.0, [leads(0, 6)], PODS)
    history.observe(20.0, [silent(0, 6, "n0")], PODS)
    history.observe(20.1, [says(1, 7)], PODS)

    assert times(history.proven(20.3, NOW, N1))["detect"] == 0.1


def test_a_leader_that_steps_down_has_a_reason_of_its_own() -> None:
    history = led_by_n0()
    history.observe(10.0, [says(0, 7)], PODS)
    history.proven(10.1, NOW, N1)

    assert history.changes[0].reason == "LeaderSteppedDown"


def test_a_leader_whose_pod_leaves_has_a_reason_of_its_own() -> None:
    history = led_by_n0()
    history.observe(10.0, [leads(0, 6)], [pod(0, leaving=True), pod(1), pod(2)])
    history.proven(10.1, NOW, N1)

    assert history.changes[0].reason == "PodReplaced"


def test_the_first_leader_is_not_a_failover() -> None:
    history = LeaderHistory([])

    phases = times(
        history.proven(1.0, NOW, N1), history.relabeled(1.1), history.endpoints_synced(1.2)
    )

    assert phases == {}
    assert (history.changes[0].reason, history.changes[0].from_member) == ("FirstLeader", "")
    assert history.changes[0].relabel_s is not None


def test_a_change_before_the_operators_start_has_no_times() -> None:
    history = LeaderHistory([change_to(N0)])

    assert history.proven(1.0, NOW, N1) == ()
    assert history.changes[0].reason == "FoundAtStart"
    assert history.changes[0].detect_s is None


def test_a_known_leader_is_not_a_change() -> None:
    history = LeaderHistory([change_to(N1)])

    assert history.proven(1.0, NOW, N1) == ()
    assert history.relabeled(1.1) == ()
    assert history.changes == (change_to(N1),)


def test_a_member_that_leads_again_in_a_later_term_is_a_change() -> None:
    history = led_by_n0()
    history.proven(5.0, NOW, Leader(term=9, member_id="n0"))

    assert (history.changes[0].from_member, history.changes[0].to_member) == ("n0", "n0")


def test_the_last_ten_changes_are_kept_newest_first() -> None:
    history = led_by_n0()
    for number in range(15):
        leader = Leader(term=10 + number, member_id=f"n{number % 2}")
        history.proven(float(number), NOW + timedelta(seconds=number), leader)

    assert [change.term for change in history.changes] == list(range(24, 14, -1))


def test_a_change_that_is_overtaken_by_the_next_keeps_its_times() -> None:
    history = led_by_n0()
    history.proven(1.0, NOW, N1)
    history.relabeled(1.5)
    history.proven(2.0, NOW, Leader(term=8, member_id="n2"))

    older = history.changes[1]
    assert (older.relabel_s, older.endpoints_s) == (0.5, None)


def won(because: str, proved_s: float, **fields: float) -> Victory:
    """What n1 tells: it waited 1 s for its leader, and 0.3 s for the votes."""
    values = {"silent_s": 1.0, "election_s": 0.3} | fields
    return Victory(stood_because=because, former_leader_id="n0", proved_s=proved_s, **values)


def test_a_planned_transfer_is_no_lost_leader() -> None:
    history = led_by_n0()
    history.observe(10.0, [leads(0, 6), says(1, 7)], PODS)

    phases = times(history.proven(10.1, NOW, N1, won("TRANSFER", 10.05, election_s=0.05)))

    assert history.changes[0].reason == "LeadershipTransferred"
    assert phases == {"detect": 0.0, "elect": 0.05}, "nothing had to be detected"


def test_the_silence_before_the_first_sign_is_a_part_of_the_detection() -> None:
    history = led_by_n0()
    history.observe(10.0, [silent(0, 6, "n0"), says(1, 7)], PODS)

    elected = history.proven(10.4, NOW, N1, won("NO_HEARTBEAT", 10.4))
    rest = (history.relabeled(10.6), history.endpoints_synced(10.9))

    assert history.changes[0].reason == "LeaderLost"
    assert times(elected, *rest) == {
        "detect": 1.0, "elect": 0.3, "relabel": 0.2, "endpoints": 0.3, "total": 1.8,
    }  # fmt: skip


def test_an_api_server_that_was_away_made_no_election_longer() -> None:
    history = led_by_n0()
    history.observe(10.0, [silent(0, 6, "n0"), says(1, 7)], PODS)

    elected = history.proven(70.4, NOW, N1, won("LEADER_LINK_LOST", 10.4))

    assert times(elected, history.relabeled(70.5)) == {"detect": 1.0, "elect": 0.3, "relabel": 60.1}
    assert history.changes[0].at == NOW - timedelta(seconds=60), "when n1 had proved itself"


def test_a_change_found_at_the_start_has_the_phases_that_the_leader_tells() -> None:
    history = LeaderHistory([change_to(N0)])

    phases = times(
        history.proven(50.0, NOW, N1, won("NO_HEARTBEAT", 20.0)),
        history.relabeled(50.5),
        history.endpoints_synced(51.0),
    )

    assert history.changes[0].reason == "LeaderLost"
    assert phases == {
        "detect": 1.0, "elect": 0.3, "relabel": 30.5, "endpoints": 0.5, "total": 32.3,
    }  # fmt: skip


def test_labels_that_were_right_at_the_start_have_no_time() -> None:
    history = LeaderHistory([change_to(N0)])

    phases = times(
        history.proven(50.0, NOW, N1, won("NO_HEARTBEAT", 20.0), labeled=True),
        history.relabeled(50.5),
        history.endpoints_synced(51.0),
    )

    assert phases == {"detect": 1.0, "elect": 0.3}
    assert (history.changes[0].relabel_s, history.changes[0].endpoints_s) == (None, None)


def test_a_member_that_knew_no_leader_does_not_tell_how_long_the_leader_was_lost() -> None:
    history = led_by_n0()
    history.observe(10.0, [says(0, 6)], PODS)

    phases = times(history.proven(12.4, NOW, N1, won("NO_LEADER", 12.4, silent_s=3600.0)))

    assert history.changes[0].reason == "LeaderSteppedDown"
    assert phases == {"detect": 2.1, "elect": 0.3}


def test_a_leader_that_hands_over_as_its_pod_ends_is_no_lost_leader() -> None:
    history = led_by_n0()
    history.observe(10.0, [leads(0, 6)], [pod(0, leaving=True), pod(1), pod(2)])
    history.proven(10.1, NOW, N1, won("TRANSFER", 10.1))

    assert history.changes[0].reason == "LeadershipTransferred"


def test_a_leader_whose_pod_ends_without_a_transfer_is_lost_with_its_pod() -> None:
    history = led_by_n0()
    history.observe(10.0, [leads(0, 6)], [pod(0, leaving=True), pod(1), pod(2)])
    history.proven(10.1, NOW, N1, won("NO_HEARTBEAT", 10.1))

    assert history.changes[0].reason == "PodReplaced"


@given(
    because=st.sampled_from([*StoodBecause, "ANOTHER"]),
    silent_s=st.floats(0, 1e6),
    election_s=st.floats(0, 1e6),
    age_s=st.floats(0, 1e6),
    signs=st.booleans(),
    at_start=st.booleans(),
)
def test_phases_are_never_negative_and_add_up_to_the_total(
    because: str, silent_s: float, election_s: float, age_s: float, signs: bool, at_start: bool
) -> None:
    history = LeaderHistory([change_to(N0)]) if at_start else led_by_n0()
    if signs:
        history.observe(2e6, [silent(0, 6, "n0"), says(1, 7)], PODS)
    victory = won(because, 2e6 + 10 - age_s, silent_s=silent_s, election_s=election_s)

    phases = times(
        history.proven(2e6 + 10, NOW, N1, victory),
        history.relabeled(2e6 + 11),
        history.endpoints_synced(2e6 + 12),
    )

    assert all(seconds >= 0 for seconds in phases.values())
    if total := phases.pop("total", None):
        assert abs(sum(phases.values()) - total) < 1e-3
