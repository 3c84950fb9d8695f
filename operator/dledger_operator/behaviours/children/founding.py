"""Finds out how a group began, from what is left of it. Pure.

A group must be founded once: members that were told "new" begin a log as soon as all first voters
are blank. And who the first voters were must never change. So both are written down wherever
something may be left when the rest is lost, deleted or restored from a backup: the settings that
members read, the StatefulSet, the volume claims, which outlive it, and the group's own status.

Where nothing is left, the group is new. Where traces contradict each other, nothing is guessed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dledger_formats.settings import GroupState, SettingsError, parse_peers, variable_name
from dledger_operator import names
from dledger_operator.resources import config_map
from dledger_operator.spec.group import Group
from dledger_operator.spec.shape import Shape
from dledger_operator.views import SettingsView, StatefulSetView, Trouble, VolumeView

FOUNDING_UNKNOWN: Final = "FoundingUnknown"
FIRST_VOTERS_KEY: Final = "firstVoters"


@dataclass(frozen=True, slots=True, kw_only=True)
class Traces:
    """What is left of a group."""

    settings: SettingsView | None
    stateful_set: StatefulSetView | None
    claims: Sequence[VolumeView]
    """Looked up only where one of the others is missing."""
    status: Mapping[str, Any]


def find_shape(group: Group, traces: Traces, *, led: bool, voters: int) -> Shape | Trouble:
    """Tell the shape of a group; `led` says that it has had a leader, which ends its founding."""
    told = _told(traces)
    if len(set(told.values())) > 1:
        said = ", ".join(f"{source} says {count}" for source, count in told.items())
        return _unknown(
            f"how many first voters the group had: {said}; put right what is wrong, "
            "or delete it if it is the ConfigMap"
        )
    if told:
        first_voters = next(iter(told.values()))
        if first_voters not in names.REPLICAS_ALLOWED:
            return _unknown(
                f"how many first voters the group had: {next(iter(told))} says {first_voters}"
            )
    elif traces.stateful_set:
        first_voters = traces.stateful_set.replicas  # it could not change in an earlier version
    elif traces.claims:
        if _claimed(traces) > group.replicas:
            return _unknown(
                f"who founded the group: it left volume claims for {_claimed(traces)} members; "
                "set spec.replicas to as many as it had, or delete the claims if what they hold is "
                "not wanted"
            )
        first_voters = group.replicas
    else:
        return Shape.of_new(group.replicas)
    return Shape(
        first_voters=first_voters,
        state=GroupState.NEW if _is_being_founded(traces) and not led else GroupState.EXISTING,
        pods=_pods(traces, first_voters),
        voters=voters,
    )


def _told(traces: Traces) -> dict[str, int]:
    """How many first voters there were, by each trace that tells; -1 for a wrong one."""
    told: dict[str, int] = {}
    if traces.settings is not None:
        told["the ConfigMap"] = _first_voters_of(traces.settings.data)
    if traces.stateful_set and traces.stateful_set.first_voters is not None:
        told["the StatefulSet"] = traces.stateful_set.first_voters
    for claim in traces.claims:
        if claim.first_voters is not None:
            told[f"the volume claim {claim.name}"] = claim.first_voters
    if isinstance(count := traces.status.get(FIRST_VOTERS_KEY), int):
        told["the status"] = count
    return told


def _first_voters_of(settings: Mapping[str, str]) -> int:
    try:
        peers = parse_peers(settings.get(variable_name("peers"), ""))
    except SettingsError:
        return -1
    expected = {names.member_id(ordinal) for ordinal in range(len(peers))}
    return len(peers) if peers.keys() == expected else -1


def _is_being_founded(traces: Traces) -> bool:
    data = traces.settings.data if traces.settings else {}
    return data.get(config_map.STATE_KEY) == GroupState.NEW.value


def _pods(traces: Traces, first_voters: int) -> int:
    """As many as there are. A StatefulSet that was lost gets one pod for each volume that there
    is: one too many does no harm, and goes again when it is sure that it is no member.
    """
    if traces.stateful_set:
        return traces.stateful_set.replicas
    return max(first_voters, min(_claimed(traces), names.REPLICAS_MAX))


def _claimed(traces: Traces) -> int:
    return max((claim.ordinal + 1 for claim in traces.claims), default=0)


def _unknown(what: str) -> Trouble:
    return Trouble(reason=FOUNDING_UNKNOWN, message=f"it is not sure {what}; nothing was changed")
