"""Finds out whether a group was founded, and with how many first voters. Pure.

A group must be founded only once: with the state "new", members start an empty log as soon as all
first voters are present and blank. The first voters must never change. Both facts are therefore
recorded in every object that may survive the loss, deletion or restore of the others: the members'
settings, the StatefulSet, the volume claims, which outlive it, and the group's own status.

Without any of these objects the group is new. It also begins if nothing but blank volumes is left
of it, as after a first creation that failed. If the records contradict each other, or the objects
that exist have none, the operator changes nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dledger_formats.peers import PeersError, parse_peers
from dledger_formats.settings import GroupState
from dledger_operator import names
from dledger_operator.api_objects import SettingsView, StatefulSetView, VolumeClaimView
from dledger_operator.problem import Problem
from dledger_operator.resources import config_map
from dledger_operator.spec.group import Group
from dledger_operator.spec.shape import Shape

FOUNDING_UNKNOWN: Final = "FoundingUnknown"
FIRST_VOTERS_KEY: Final = "firstVoters"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundingRecords:
    """The existing objects of a group that may record its founding."""

    settings: SettingsView | None
    stateful_set: StatefulSetView | None
    claims: Sequence[VolumeClaimView]
    """The group's volume claims; empty unless the settings or the StatefulSet are missing."""
    status: Mapping[str, Any]


def find_shape(
    group: Group,
    records: FoundingRecords,
    *,
    led: bool,
    voters: int,
    blank: frozenset[int] = frozenset(),
) -> Shape | Problem:
    """Return the shape of a group; `led` says if it has had a leader, which ends its founding.

    `blank` is from `blank_ordinals`. A group that never had a leader begins over existing volume
    claims if each is blank, those of all first voters among them.
    """
    recorded = _recorded_first_voters(records)
    if len(set(recorded.values())) > 1:
        return _contradiction(records, recorded)
    if recorded:
        source, first_voters = next(iter(recorded.items()))
        if first_voters not in names.REPLICAS_ALLOWED:
            return _unknown(f"{source} says {first_voters}")
    elif records.stateful_set:
        return _unknown(
            "the StatefulSet has no valid annotation "
            f"{names.FIRST_VOTERS_ANNOTATION}; set it to the number of first voters"
        )
    elif records.claims:
        # A user created the claims by hand, or restored them without their annotations.
        if _claimed_members(records) > group.replicas:
            return _unknown(
                f"there are volume claims for {_claimed_members(records)} members; set "
                "spec.replicas to the number of members that the group had, or delete the claims "
                "if their data is not needed"
            )
        first_voters = group.replicas
    else:
        return Shape.of_new(group.replicas)
    begins = set(range(first_voters)) <= blank or _is_being_founded(records)
    return Shape(
        first_voters=first_voters,
        state=GroupState.NEW if begins and not led else GroupState.EXISTING,
        pods=_pods(records, first_voters, asleep=group.hibernate and (led or has_begun(records))),
        voters=voters,
        superseded=records.settings.superseded if records.settings else frozenset(),
    )


def blank_ordinals(claims: Sequence[VolumeClaimView], blank: frozenset[str]) -> frozenset[int]:
    """Return the ordinals of a group's volume claims if each of them is blank, else none."""
    if any(claim.name not in blank or claim.leaving for claim in claims):
        return frozenset()
    return frozenset(claim.ordinal for claim in claims)


def _recorded_first_voters(records: FoundingRecords) -> dict[str, int]:
    """Return the number of first voters by record; -1 for an invalid record.

    If the ConfigMap says that a number is superseded, the records that outlive a StatefulSet may
    still contain it.
    """
    recorded: dict[str, int] = {}
    if records.settings is not None:
        recorded["the ConfigMap"] = _first_voters_of(records.settings.data)
    for source, count in _lasting_records(records):
        superseded = records.settings is not None and count in records.settings.superseded
        recorded[source] = recorded["the ConfigMap"] if superseded else count
    made = records.stateful_set
    if made and made.first_voters is not None and not _is_superseded(records):
        recorded["the StatefulSet"] = made.first_voters
    return recorded


def _contradiction(records: FoundingRecords, recorded: Mapping[str, int]) -> Problem:
    counts = {**recorded, **dict(_lasting_records(records))}
    listed = ", ".join(f"{source} says {count}" for source, count in counts.items())
    settings, made = records.settings, records.stateful_set
    if settings and made and made.first_voters in settings.superseded:
        advice = "delete the ConfigMap, and leave the StatefulSet: its members may have begun"
    else:
        advice = "correct the wrong one, or delete it if it is the ConfigMap"
    return _unknown(f"{listed}; {advice}")


def _lasting_records(records: FoundingRecords) -> Iterator[tuple[str, int]]:
    for claim in records.claims:
        if claim.first_voters is not None:
            yield f"volume claim {claim.name}", claim.first_voters
    if isinstance(count := records.status.get(FIRST_VOTERS_KEY), int):
        yield "the status", count


def is_founded_again(records: FoundingRecords) -> bool:
    """Return whether the StatefulSet is to be made with another number of first voters."""
    noted = records.settings is not None and records.settings.superseded
    gone = records.stateful_set is None or _is_superseded(records)
    return bool(noted) and gone and _is_being_founded(records)


def _is_superseded(records: FoundingRecords) -> bool:
    """Return whether the StatefulSet is being deleted for another founding (`founded_again`)."""
    settings, made = records.settings, records.stateful_set
    return bool(settings and made and made.leaving and made.first_voters in settings.superseded)


def _first_voters_of(settings: Mapping[str, str]) -> int:
    try:
        peers = parse_peers(settings.get(config_map.PEERS_KEY, ""))
    except PeersError:
        return -1
    expected = {names.member_id(ordinal) for ordinal in range(len(peers))}
    return len(peers) if peers.keys() == expected else -1


def has_begun(records: FoundingRecords) -> bool:
    """Return whether the settings say that the founding of the group is over."""
    return records.settings is not None and not _is_being_founded(records)


def _is_being_founded(records: FoundingRecords) -> bool:
    data = records.settings.data if records.settings else {}
    return data.get(config_map.STATE_KEY) == GroupState.NEW.value


def _pods(records: FoundingRecords, first_voters: int, *, asleep: bool) -> int:
    """Return the current replicas of the StatefulSet; `asleep` says that the group has begun and is
    to have no pods.

    A StatefulSet that was lost gets one pod per volume claim, or none if the group is asleep. An
    extra pod is harmless: it is removed as soon as a leader confirms that it is not a member.
    """
    if is_founded_again(records):
        return first_voters
    if records.stateful_set:
        return records.stateful_set.replicas
    note = records.settings.note if records.settings else ""
    if note.isascii() and note.isdigit() and int(note[:3]) <= names.REPLICAS_MAX:
        return int(note[:3])  # the operator itself deleted the StatefulSet and left the pods
    if asleep:
        return 0
    return max(first_voters, min(_claimed_members(records), names.REPLICAS_MAX))


def _claimed_members(records: FoundingRecords) -> int:
    return max((claim.ordinal + 1 for claim in records.claims), default=0)


def _unknown(detail: str) -> Problem:
    return Problem(
        reason=FOUNDING_UNKNOWN,
        message=f"the number of first voters is unknown: {detail}; nothing was changed",
    )
