"""Places for requests that take long: one address gets only a part of them."""

import asyncio
import contextlib
from typing import cast
from unittest.mock import Mock

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from prometheus_client import CollectorRegistry

from dledger_formats.http.status import LeaderView
from dledger_node.http import pages
from dledger_node.http.places import Places

NEARBY, ELSEWHERE = "198.18.0.1", "198.18.0.2"
NEWS_PATH = "/leader?since=1:n1&wait=60s"


class SteadyMember:
    """A member whose leader does not change."""

    def leader_view(self) -> LeaderView:
        return LeaderView(
            self_id="n0",
            term=1,
            leader_id="n1",
            master=False,
            ledger_end_index=-1,
            committed_index=-1,
        )

    async def leader_changed(self, _: str) -> None:
        await asyncio.Event().wait()


def ask(app: web.Application, path: str, address: str) -> "asyncio.Task[web.Response]":
    transport = Mock()
    transport.get_extra_info.side_effect = {"peername": (address, 1)}.get
    request = make_mocked_request("GET", path, app=app, transport=transport)
    return asyncio.create_task(pages.leader_page(request))


def test_one_address_gets_a_part_of_the_places() -> None:
    places = Places("requests wait", count_max=4, per_address_max=2)
    with contextlib.ExitStack() as taken:
        for _ in range(2):
            taken.enter_context(places.take(NEARBY))

        with pytest.raises(web.HTTPServiceUnavailable) as refused, places.take(NEARBY):
            pass
        assert refused.value.text == "2 requests wait, 2 of them from 198.18.0.1; ask again later\n"
        with places.take(ELSEWHERE):
            pass
    with places.take(NEARBY):
        pass


def test_all_addresses_together_get_no_more_than_all_places() -> None:
    places = Places("requests wait", count_max=4, per_address_max=2)
    with contextlib.ExitStack() as taken:
        for number in range(4):
            taken.enter_context(places.take(f"198.18.1.{number}"))

        with pytest.raises(web.HTTPServiceUnavailable), places.take(NEARBY):
            pass


async def test_an_address_that_waits_many_times_keeps_no_other_from_waiting() -> None:
    app = pages.application(cast("pages.Source", SteadyMember()), CollectorRegistry())
    waits = [ask(app, NEWS_PATH, NEARBY) for _ in range(pages.WAITERS_PER_ADDRESS_MAX)]
    await asyncio.sleep(0)
    refused, other = ask(app, NEWS_PATH, NEARBY), ask(app, NEWS_PATH, ELSEWHERE)
    at_once = ask(app, "/leader", NEARBY)
    await asyncio.wait([refused, at_once])

    with pytest.raises(web.HTTPServiceUnavailable):
        refused.result()
    assert at_once.result().status == 200
    assert not any(each.done() for each in (*waits, other))
    for each in (*waits, other):
        each.cancel()
