"""What a member logs about the links that it opens."""

import logging
from typing import Any, cast

import pytest

from dledger_formats.settings import NodeSettings
from dledger_node.limited_log import LINES_MAX
from dledger_node.shell.peers import LinkOwner


class Store:
    """The part of a store that a restored link concerns."""

    def distrust(self) -> None:
        """Read stored entries from the disk again."""


def test_a_peer_that_closes_its_link_again_and_again_does_not_fill_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    settings = NodeSettings(
        group="g", self_id="n0", peers={"n0": "a:1", "n1": "b:1"}, store_base_dir="/d"
    )
    nothing = cast("Any", None)
    owner = LinkOwner(
        settings, nothing, cast("Any", Store()), incarnation=1, identity=nothing,
        turn=lambda work: None,
    )  # fmt: skip

    for _ in range(10 * LINES_MAX):
        owner.link_restored("n1")
        owner.link_lost("n1")
    assert caplog.messages == ["link to n1 is up"] * LINES_MAX

    owner.link_restored("n2")
    assert caplog.messages[-1] == "link to n2 is up"
