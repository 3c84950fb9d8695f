"""Volumes grow as the rules say, wherever the operator is killed."""

import contextlib
import itertools
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from dledger_formats.quantities import quantity_bytes
from dledger_kube.objects import NOW, group
from dledger_kube.one_off_world import KilledError
from dledger_operator.api_objects import VolumeClaimView
from dledger_operator.behaviors.volumes.grow_claims import grow_claims
from dledger_operator.behaviors.volumes.growth import VolumeUse
from dledger_operator.clients.errors import ConflictError

GIB = 1 << 30
STEP, MAX, SIZE = 5 * GIB, 22 * GIB, 12 * GIB
COOL_DOWN = timedelta(hours=1)
TURN = timedelta(minutes=7)
GROUP = group(
    storage={
        "size": "12Gi",
        "autoGrow": {"usedPercent": 80, "step": "5Gi", "maxSize": "22Gi", "coolDown": "1h"},
    }
)


@dataclass
class Cluster:
    """Three claims, of which some fill up; Kubernetes grows their volumes between two turns."""

    kills: list[tuple[int, bool]]
    """The numbers of requests at which the operator is killed, and whether the write counted."""
    claims: dict[str, VolumeClaimView] = field(default_factory=dict)
    now: datetime = NOW
    requests: int = 0
    grown: dict[str, list[datetime]] = field(default_factory=dict)
    """When each claim grew by itself."""

    def __post_init__(self) -> None:
        for ordinal in range(3):
            name = f"data-flights-{ordinal}"
            self.claims[name] = VolumeClaimView(
                name=name, ordinal=ordinal, first_voters=3, identity="", leaving=False,
                problem=None, requested="10Gi", capacity="10Gi", resource_version="0",
            )  # fmt: skip

    async def grow_volume_claim(
        self, claim: VolumeClaimView, size: str, grown_at: datetime | None
    ) -> None:
        kill = next((counts for at, counts in self.kills if at == self.requests), None)
        self.requests += 1
        if kill is False:
            raise KilledError
        now = self.claims[claim.name]
        if now.resource_version != claim.resource_version:
            raise ConflictError(claim.name)
        assert quantity_bytes(size) > quantity_bytes(now.requested), "no claim shrinks"
        assert quantity_bytes(size) <= MAX
        if grown_at:
            others = max(quantity_bytes(each.capacity) for each in self.claims.values())
            assert quantity_bytes(size) <= max(quantity_bytes(now.requested) + STEP, others)
            self.grown.setdefault(claim.name, []).append(grown_at)
        version = str(int(now.resource_version) + 1)
        self.claims[claim.name] = replace(
            now, requested=size, grown_at=grown_at or now.grown_at, resource_version=version
        )
        if kill:
            raise KilledError

    def pass_time(self) -> None:
        self.now += TURN
        for name, each in self.claims.items():
            version = str(int(each.resource_version) + (each.capacity != each.requested))
            self.claims[name] = replace(each, capacity=each.requested, resource_version=version)

    def use(self, full: list[bool]) -> dict[str, VolumeUse]:
        return {
            name: VolumeUse(
                size_bytes=quantity_bytes(each.capacity),
                available_bytes=quantity_bytes(each.capacity) // (10 if is_full else 2),
            )
            for (name, each), is_full in zip(self.claims.items(), full, strict=True)
        }


@settings(max_examples=200)
@given(
    kills=st.lists(st.tuples(st.integers(0, 12), st.booleans()), max_size=6),
    full=st.lists(st.booleans(), min_size=3, max_size=3),
    turns=st.integers(30, 60),
)
async def test_an_operator_killed_at_any_request_grows_every_volume_as_the_rules_say(
    kills: list[tuple[int, bool]], full: list[bool], turns: int
) -> None:
    cluster = Cluster(kills)
    for _ in range(turns):
        seen = list(cluster.claims.values())
        with contextlib.suppress(KilledError):  # the next turn is another operator's
            await grow_claims(cluster, GROUP, seen, cluster.use(full), cluster.now)
        cluster.pass_time()

    for (name, each), is_full in zip(cluster.claims.items(), full, strict=True):
        assert quantity_bytes(each.capacity) == (MAX if any(full) else SIZE)
        times = cluster.grown.get(name, [])
        growths = 2 if is_full else int(any(full))
        assert len(times) == growths, "12, 17 and 22 GiB; others follow when two steps behind"
        assert all(later - sooner >= COOL_DOWN for sooner, later in itertools.pairwise(times))
