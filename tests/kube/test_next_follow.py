"""When the labels are looked at again, although no event calls for it."""

from collections.abc import Callable, Mapping, Sequence

from dledger_formats.http.status import NodeStatus
from dledger_kube.objects import group, leads, membership, pod, says, silent
from dledger_kube.pod_store import PodStore
from dledger_operator.api_objects import PodView
from dledger_operator.behaviors.leader.role_labeler import (
    CLOCK_S,
    LOOK_AGAIN_S,
    NOT_FOLLOWING_S_MAX,
    RoleLabeler,
)
from dledger_operator.observed_state import Observation


class Polls:
    """What the long polls have told so far."""

    def __init__(self) -> None:
        self.told: list[Observation] = []

    def sync(self, pods: Sequence[PodView]) -> None:
        """Keep what was told."""

    def observations(self) -> list[Observation]:
        return self.told


class Followed:
    """A group of three whose n1 leads, and the operator's clock."""

    def __init__(self, pods: int = 3) -> None:
        self.now_s = 0.0
        self.polls = Polls()
        self.store = PodStore(tuple(pod(ordinal) for ordinal in range(pods)))
        self.labeler = RoleLabeler(
            self.store,  # type: ignore[arg-type]
            self.polls,  # type: ignore[arg-type]
            ask=self._ask,
            clock=lambda: self.now_s,
            on_decision=lambda _: None,
            on_settled=lambda _: None,
            on_conflict=lambda: None,
        )

    async def _ask(self, _: Sequence[PodView]) -> Mapping[str, NodeStatus]:
        return {}

    async def run(self, *told: Observation, hibernate: bool = False) -> float | None:
        self.polls.told = [*told]
        return await self.labeler.run_once(group(hibernate=hibernate), membership())

    def role(self, ordinal: int) -> str:
        return self.store.pods()[ordinal].role(group().roles)


FOLLOW: Callable[[int], Observation] = lambda ordinal: says(ordinal, 7, "n1")  # noqa: E731
LEADS = leads(1, 7)


async def test_events_tell_everything_about_a_group_whose_members_follow() -> None:
    followed = Followed()

    assert await followed.run(FOLLOW(0), LEADS, FOLLOW(2)) is None


async def test_a_follower_that_was_well_for_long_keeps_its_role_when_it_falls_silent() -> None:
    """The time counts from its silence on, and not from the last look at it."""
    followed = Followed()
    await followed.run(FOLLOW(0), LEADS, FOLLOW(2))

    followed.now_s += 10 * NOT_FOLLOWING_S_MAX
    again_s = await followed.run(FOLLOW(0), LEADS, silent(2, 7))
    assert followed.role(2) == "slave"
    assert again_s == NOT_FOLLOWING_S_MAX + CLOCK_S

    followed.now_s += again_s
    again_s = await followed.run(FOLLOW(0), LEADS, silent(2, 7))
    assert followed.role(2) == "none"
    assert again_s is None


async def test_a_follower_that_follows_again_has_its_whole_time_again() -> None:
    followed = Followed()
    await followed.run(FOLLOW(0), LEADS, silent(2, 7))
    followed.now_s += NOT_FOLLOWING_S_MAX - 1
    assert await followed.run(FOLLOW(0), LEADS, FOLLOW(2)) is None

    followed.now_s += 1.5
    assert await followed.run(FOLLOW(0), LEADS, silent(2, 7)) == NOT_FOLLOWING_S_MAX + CLOCK_S
    assert followed.role(2) == "slave"


async def test_a_group_without_a_leader_is_looked_at_soon() -> None:
    followed = Followed()

    assert await followed.run(*(silent(each, 7) for each in range(3))) == LOOK_AGAIN_S


async def test_events_tell_everything_about_a_group_that_sleeps() -> None:
    followed = Followed(pods=0)

    assert await followed.run(hibernate=True) is None
    assert await followed.run() == LOOK_AGAIN_S, "it wakes"
    falls_asleep = Followed(pods=1)
    assert await falls_asleep.run(silent(0, 7), hibernate=True) == LOOK_AGAIN_S
