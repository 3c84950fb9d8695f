"""The entries of a canary are nobody's: no producer's, no membership, and no leader's first."""

from dledger_formats.log import disk
from dledger_formats.log.canaries import CANARY_CHANNEL, is_canary
from dledger_formats.log.channels import PRODUCERS_MAX, ChannelRun, number_of
from dledger_formats.log.memberships import MEMBERSHIP_CHANNEL, is_membership
from dledger_node.store.derived.producers import Producers


def test_only_a_noop_with_its_channel_is_a_canary() -> None:
    assert is_canary(disk.NOOP, CANARY_CHANNEL)
    assert not is_canary(disk.NORMAL, CANARY_CHANNEL)
    assert not is_canary(disk.NOOP, 0), "a leader's first entry"
    assert not is_canary(disk.NOOP, MEMBERSHIP_CHANNEL)


def test_a_canary_changes_no_membership_and_registers_no_producer() -> None:
    table = Producers()

    table.note(ChannelRun(0, disk.NOOP, CANARY_CHANNEL))

    assert len(table) == 0
    assert not is_membership(disk.NOOP, CANARY_CHANNEL)
    assert number_of(CANARY_CHANNEL) > PRODUCERS_MAX


def test_a_channel_of_java_can_hold_it() -> None:
    assert 0 < CANARY_CHANNEL < 1 << 31
