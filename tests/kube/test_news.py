"""Events: few, and counted."""

from datetime import timedelta
from typing import Any

from dledger_kube.objects import NOW, facts, group_body, member
from dledger_operator.behaviours.report.event_recorder import News, NewsDesk
from dledger_operator.behaviours.report.group_events import ConditionNews, of_leader_change
from dledger_operator.clients.errors import UnavailableError
from dledger_operator.conditions import of_group
from dledger_operator.facts import EndpointsFacts, GroupFacts, LeaderChange
from dledger_operator.views import Manifest

WRONG = EndpointsFacts(synced=False, reason="WrongEndpoints", message="it leads to n0")
LOST = facts(members=tuple(member(k, ready=k == 1, reason="gone") for k in range(3)))


def conditions(of: GroupFacts, age_s: float = 0.0) -> list[Manifest]:
    """The conditions of a group that has been like this for so long."""
    return of_group.build(of, previous=[], now=NOW - timedelta(seconds=age_s), generation=1)


def told(news: ConditionNews, before: list[Manifest], after: list[Manifest]) -> list[str]:
    return [each.reason for each in news.of_conditions(before, after, NOW)]


def test_a_majority_that_is_lost_and_comes_back_is_told_once_each() -> None:
    news = ConditionNews()
    well, lost = conditions(facts()), conditions(LOST)

    assert told(news, well, lost) == ["QuorumLost"]
    assert told(news, lost, lost) == []
    assert told(news, lost, well) == ["QuorumRestored"]
    assert told(news, well, well) == []


def test_a_new_group_that_has_no_majority_yet_is_no_news() -> None:
    news = ConditionNews()

    assert told(news, [], conditions(LOST)) == []
    assert told(news, conditions(LOST), conditions(facts())) == []


def test_a_service_that_leads_elsewhere_is_told_once_it_has_lasted() -> None:
    news = ConditionNews()
    wrong = facts(endpoints=WRONG)

    assert told(news, [], conditions(wrong, age_s=1.0)) == []
    assert told(news, [], conditions(wrong, age_s=6.0)) == ["EndpointsMismatch"]
    assert told(news, [], conditions(wrong, age_s=7.0)) == []


def test_a_mismatch_that_came_back_is_told_again() -> None:
    news = ConditionNews()
    wrong = conditions(facts(endpoints=WRONG), age_s=6.0)
    told(news, [], wrong)
    told(news, [], conditions(facts()))

    assert told(news, [], wrong) == ["EndpointsMismatch"]


def test_a_new_leader_is_told_with_what_was_before() -> None:
    change = LeaderChange(from_member="n0", to_member="n1", term=7, reason="LeaderLost", at=NOW)

    assert of_leader_change(change).message == "n1 leads term 7, after n0 (LeaderLost)"


class Posted:
    """An API that keeps Events by name, as the real one does."""

    def __init__(self) -> None:
        self.events: dict[str, Manifest] = {}
        self.down = False

    async def apply(self, manifest: Manifest) -> None:
        if self.down:
            raise UnavailableError("no answer")
        self.events[manifest["metadata"]["name"]] = manifest


async def post(desk: NewsDesk, message: str = "gone", **metadata: Any) -> None:
    body = group_body()
    body["metadata"] |= metadata
    await desk.post("DLedgerGroup", body, News(severity="Warning", reason="R", message=message))


async def test_the_same_news_again_is_counted() -> None:
    api = Posted()
    desk = NewsDesk(api, now=lambda: NOW)
    await post(desk)
    await post(desk)
    await post(desk, "something else")

    assert sorted(event["count"] for event in api.events.values()) == [1, 2]


async def test_an_event_names_the_object_and_who_reports_it() -> None:
    api = Posted()
    await post(NewsDesk(api, now=lambda: NOW))
    (event,) = api.events.values()

    assert event["involvedObject"]["uid"] == "group-uid"
    assert event["source"] == {"component": "dledger-operator"}
    assert event["firstTimestamp"] == event["lastTimestamp"] == "2026-01-01T00:00:00Z"


async def test_news_of_a_new_object_of_the_same_name_is_news() -> None:
    api = Posted()
    desk = NewsDesk(api, now=lambda: NOW)
    await post(desk, uid="first")
    await post(desk, uid="second")

    assert [event["count"] for event in api.events.values()] == [1, 1]


async def test_an_event_that_cannot_be_posted_stops_nothing() -> None:
    api = Posted()
    api.down = True
    desk = NewsDesk(api, now=lambda: NOW)
    await post(desk)
    api.down = False
    await post(desk)

    assert [event["count"] for event in api.events.values()] == [1]
