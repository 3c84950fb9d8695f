"""Which clients a leader counts as members of their groups, by what the members say about them."""

import pytest

from dledger_broker.door.between_members.door_frames import PresenceNote
from dledger_broker.door.consumer_groups.presence import OUT_OF_TOUCH_S, PART_MAX
from dledger_broker.leading.client_leases import (
    ADOPTED_S,
    GONE_S,
    REPORTED_S,
    SILENT_S,
    TICK_S,
    Membership,
)
from dledger_broker.state.groups import CLIENTS_MAX
from dledger_broker_client.told_clients import MEMBERS, Group, Leader

ONE, TWO = ("g", "c1"), ("g", "c2")


def test_a_client_leaves_two_seconds_after_its_last_connection_has_closed() -> None:
    leader = Leader(ONE)
    leader.note("n1", ONE, first=True)
    leader.note("n2", ONE, first=True)
    leader.wait(REPORTED_S, "n1", "n2")
    leader.leases.noted("n1", (), [ONE], is_first=False)
    leader.wait(GONE_S + TICK_S)
    assert leader.members == {ONE}, "n2 still has it"

    leader.leases.noted("n2", (), [ONE], is_first=False)
    leader.wait(GONE_S - TICK_S)
    assert leader.members == {ONE}
    leader.wait(2 * TICK_S)
    assert leader.members == set()


def test_a_silent_client_leaves_although_its_connection_is_open() -> None:
    leader = Leader(ONE, TWO)
    leader.note("n1", ONE, TWO, first=True)
    leader.wait(60, "n1")
    leader.note("n1", TWO)
    leader.wait(SILENT_S - 60 - TICK_S, "n1")
    assert leader.members == {ONE, TWO}

    leader.wait(2 * TICK_S, "n1")
    assert leader.members == {TWO}


def test_the_clients_of_a_member_that_died_leave_forty_seconds_after_it_was_heard() -> None:
    leader = Leader(ONE, TWO)
    leader.note("n1", ONE, first=True)
    leader.note("n2", TWO, first=True)

    leader.wait(ADOPTED_S - TICK_S, "n2")
    assert leader.members == {ONE, TWO}
    leader.wait(2 * TICK_S, "n2")
    assert leader.members == {TWO}


def test_a_new_leader_waits_forty_seconds_for_a_member_that_has_a_client() -> None:
    leader = Leader(ONE, TWO)
    leader.wait(ADOPTED_S - 2 * TICK_S)
    assert leader.members == {ONE, TWO}
    leader.note("n1", ONE, first=True)

    leader.wait(3 * TICK_S, "n1")
    assert leader.members == {ONE}


def test_a_client_that_closed_one_connection_stays_until_a_slow_member_tells_a_new_leader() -> None:
    leader = Leader(ONE, TWO)
    leader.note("n1", TWO, first=True)
    leader.leases.noted("n1", (), [ONE, TWO], is_first=False)
    leader.wait(REPORTED_S - TICK_S, "n1")
    leader.note("n2", ONE, TWO, first=True)

    leader.wait(ADOPTED_S, "n1", "n2")
    assert leader.members == {ONE, TWO}


def test_a_client_that_closed_its_only_connection_leaves_a_new_leader_after_ten_seconds() -> None:
    leader = Leader(ONE, TWO)
    leader.note("n1", TWO, first=True)
    leader.leases.noted("n1", (), [ONE], is_first=False)
    leader.wait(REPORTED_S - TICK_S, "n1")
    assert leader.members == {ONE, TWO}, "another member may still tell of it"
    leader.wait(2 * TICK_S, "n1")
    assert leader.members == {TWO}

    leader.leases.noted("n1", (), [TWO], is_first=False)
    leader.wait(GONE_S + TICK_S, "n1")
    assert leader.members == set(), "by now the others have told of all their clients"


def test_a_client_that_joins_has_time_until_its_member_speaks_of_it() -> None:
    leader = Leader()
    leader.join(ONE)

    leader.wait(ADOPTED_S - TICK_S)
    assert leader.members == {ONE}
    leader.wait(2 * TICK_S)
    assert leader.members == set()


def test_the_clients_of_a_member_that_has_started_again_have_time_to_beat_elsewhere() -> None:
    """A client of 4.9 that has connected to another member sends no heartbeat for up to 30 s."""
    leader = Leader(ONE, TWO)
    leader.note("n1", ONE, TWO, first=True)
    leader.leases.noted("n1", (), (), is_first=True, is_new=True)

    leader.wait(30.0, "n1", "n2")
    assert leader.members == {ONE, TWO}
    leader.note("n2", TWO, first=True)
    leader.wait(ADOPTED_S - 30.0 + TICK_S, "n1", "n2")
    assert leader.members == {TWO}


def test_a_member_that_tells_all_again_has_only_the_clients_that_it_says() -> None:
    leader = Leader(ONE, TWO)
    leader.note("n1", ONE, TWO, first=True)
    leader.note("n1", TWO, first=True)

    leader.wait(REPORTED_S - TICK_S, "n1")
    assert leader.members == {ONE, TWO}
    leader.wait(2 * TICK_S, "n1")
    assert leader.members == {TWO}


def test_a_member_that_was_silent_for_long_must_tell_of_all_its_clients() -> None:
    leader = Leader(ONE)
    assert not leader.note("n1")
    assert leader.note("n1", ONE, first=True)
    assert leader.note("n1")
    leader.wait(15)

    assert not leader.note("n1")


def told(leader: Leader, member: str, *seen: Membership, is_new: bool = False) -> None:
    """Let a member tell about all of its clients."""
    leader.leases.noted(member, seen, (), is_first=True, is_last=True, is_new=is_new)


def test_a_client_that_no_member_has_leaves_a_new_leader_once_all_have_told() -> None:
    leader = Leader(ONE, TWO)
    told(leader, "n0")
    told(leader, "n1", ONE)
    leader.wait(GONE_S + TICK_S, *MEMBERS)
    assert leader.members == {ONE, TWO}, "n2 may have it"

    told(leader, "n2")
    leader.wait(GONE_S + TICK_S, *MEMBERS)
    assert leader.members == {ONE}


def test_a_member_that_has_begun_to_tell_may_have_further_clients() -> None:
    leader = Leader(ONE)
    told(leader, "n0")
    told(leader, "n1")
    leader.note("n2", first=True)
    leader.wait(GONE_S + TICK_S, *MEMBERS)

    assert leader.members == {ONE}


def test_a_member_that_has_just_started_cannot_tell_of_its_earlier_clients() -> None:
    """They may be elsewhere by now, and send no heartbeat for up to 30 s."""
    leader = Leader(ONE)
    told(leader, "n0", is_new=True)
    told(leader, "n1")
    told(leader, "n2")
    leader.wait(ADOPTED_S - 2 * TICK_S, *MEMBERS)
    assert leader.members == {ONE}

    leader.wait(3 * TICK_S, *MEMBERS)
    assert leader.members == set()


def test_a_silent_client_is_as_old_to_a_new_leader() -> None:
    leader = Leader(ONE, TWO)
    leader.leases.noted("n1", (ONE, TWO), (), is_first=True, ages_s=[int(SILENT_S) - 50])
    leader.wait(50 - TICK_S, "n1")
    assert leader.members == {ONE, TWO}

    leader.wait(2 * TICK_S, "n1")
    assert leader.members == {TWO}, "nothing was said of its age"


def moved(seconds: float, *, is_frozen: bool, is_closed_first: bool) -> Group:
    """Let a client go from a member that lost touch to another one, and say nothing there."""
    group = Group(0)
    group.losses = 0.0
    group.members[0].connect(ONE)
    group.members[1].connect(TWO)
    group.leader.members |= {ONE, TWO}
    group.wait(1.0)
    if is_frozen:
        group.leader.now_s += seconds
    else:
        group.has_leader = False
        group.wait(seconds)
        group.has_leader = True
    if is_closed_first:
        group.members[0].disconnect(ONE)
    group.elect()
    group.wait(0.5)
    group.members[0].disconnect(ONE)
    return group


@pytest.mark.parametrize("is_closed_first", [True, False])
@pytest.mark.parametrize("is_frozen", [True, False])
def test_the_clients_of_a_member_that_was_out_of_touch_have_time_to_beat_elsewhere(
    is_frozen: bool, is_closed_first: bool
) -> None:
    """A client of 4.9 that has connected to another member sends no heartbeat for up to 30 s."""
    group = moved(OUT_OF_TOUCH_S, is_frozen=is_frozen, is_closed_first=is_closed_first)
    group.wait(30.0)
    assert group.leader.members == {ONE, TWO}

    group.members[1].connect(ONE)
    group.wait(ADOPTED_S)
    assert group.leader.members == {ONE, TWO}


@pytest.mark.parametrize("is_closed_first", [True, False])
@pytest.mark.parametrize("is_frozen", [True, False])
def test_a_client_of_a_member_that_was_out_of_touch_leaves_if_it_does_not_come(
    is_frozen: bool, is_closed_first: bool
) -> None:
    group = moved(OUT_OF_TOUCH_S, is_frozen=is_frozen, is_closed_first=is_closed_first)
    group.wait(ADOPTED_S + 2 * TICK_S)

    assert group.leader.members == {TWO}


def test_a_client_that_has_left_a_member_with_a_leader_leaves_a_new_leader_soon() -> None:
    group = moved(OUT_OF_TOUCH_S / 2, is_frozen=False, is_closed_first=True)
    group.wait(GONE_S + 2 * TICK_S)

    assert group.leader.members == {TWO}


@pytest.mark.parametrize("seed", range(100))
def test_exactly_the_clients_that_are_connected_somewhere_stay(seed: int) -> None:
    """Whatever notes were lost: as soon as none is lost any more, and clients send heartbeats."""
    group = Group(seed)
    group.play()
    group.losses, group.has_leader = 0.0, True
    for step in range(int(2 * ADOPTED_S / 0.1)):
        if step % 300 == 0:
            group.heartbeats()
        group.tick()

    assert group.leader.members == {client for member in group.members for client in member.clients}


def notes_taken(group: Group) -> list[PresenceNote]:
    """Return a list that gets the notes of all members, none of which is lost."""
    group.losses = 0.0
    notes: list[PresenceNote] = []

    def take(note: PresenceNote) -> bool:
        notes.append(note)
        return True

    group.take = take  # type: ignore[method-assign]
    return notes


def test_a_member_tells_how_long_its_clients_are_silent() -> None:
    group = Group(0)
    notes, member = notes_taken(group), group.members[0]
    member.connect(ONE)
    group.leader.now_s += 70
    member.connect(TWO)
    member.presence.tick()

    assert [(note.is_first, note.is_last) for note in notes] == [(True, True)]
    assert dict(zip(notes[0].seen, notes[0].ages_s, strict=True)) == {ONE: 70, TWO: 0}


def test_the_last_of_many_parts_says_so() -> None:
    group = Group(0)
    notes, member = notes_taken(group), group.members[0]
    member.clients = {("g", f"c{number}") for number in range(2 * PART_MAX + 1)}
    for _ in range(3):
        member.presence.tick()
    member.connect(("g", "another"))
    member.presence.tick()

    assert [note.is_first for note in notes] == [True, False, False, False]
    assert [note.is_last for note in notes] == [False, False, True, False]


@pytest.mark.parametrize("count", [3 * PART_MAX, CLIENTS_MAX])
def test_many_clients_are_told_in_parts(count: int) -> None:
    group = Group(0)
    group.losses = 0.0
    clients = {("g", f"c{number}") for number in range(count)}
    group.members[0].clients = clients
    group.leader.members |= clients
    group.elect()
    group.heartbeats()
    for _ in range(int(2 * ADOPTED_S / 0.1)):
        group.tick()

    assert group.leader.members == clients


def test_a_limit_holds_until_the_member_speaks_of_the_client_again() -> None:
    leader = Leader(ONE, TWO)
    leader.note("n1", ONE, TWO, first=True)
    leader.note("n2", first=True)
    leader.note("n1", first=True)  # it begins to tell again, and tells of one
    leader.note("n1", ONE)

    leader.wait(REPORTED_S + 2 * TICK_S, "n1", "n2")
    assert leader.members == {ONE}


def test_a_later_limit_does_not_extend_an_earlier_one() -> None:
    leader = Leader(ONE)
    leader.note("n1", ONE, first=True)
    leader.note("n1", first=True)
    leader.now_s += 5.0
    leader.leases.noted("n1", (), (), is_first=True, is_new=True)

    leader.wait(REPORTED_S - 5.0 + 2 * TICK_S, "n1")
    assert leader.members == set()
