"""The file of live settings: what it may change, and which mistakes are refused."""

import pytest

from dledger_formats.live_settings import LIVE, in_force, overlay, to_text
from dledger_formats.settings import NodeSettings, SettingsError

SETTINGS = NodeSettings(
    group="g", self_id="n0", peers={"n0": "127.0.0.1:1"}, store_base_dir="/x", retention_bytes=5000
)


def test_a_file_takes_precedence_over_the_environment() -> None:
    changed = overlay(SETTINGS, "# why\n\nDLEDGER_RETENTION_BYTES=9000\n DLEDGER_LOG_LEVEL=debug\n")

    assert (changed.retention_bytes, changed.log_level) == (9000, "debug")
    assert changed.connections_max == SETTINGS.connections_max


def test_an_empty_file_changes_nothing() -> None:
    assert overlay(SETTINGS, "") == SETTINGS


def test_what_is_in_force_can_be_written_and_read_back() -> None:
    changed = overlay(SETTINGS, "DLEDGER_DELETE_WHEN=03;15\nDLEDGER_DISK_FULL_PERCENT=90")

    assert overlay(SETTINGS, to_text(in_force(changed))) == changed
    assert len(in_force(changed)) == len(LIVE)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("DLEDGER_GROUP=other", "cannot change while the member runs"),
        ("DLEDGER_PEERS=n0-h:1", "cannot change while the member runs"),
        ("DLEDGER_RETENTION_BYTE=1", "cannot change while the member runs"),
        ("DLEDGER_RETENTION_BYTES=-1", "must be 0 to"),
        ("DLEDGER_RETENTION_BYTES=many", "whole number"),
        ("DLEDGER_DELETE_WHEN=25", "hours from 0 to 23"),
        ("DLEDGER_LOG_LEVEL=loud", "must be debug or info"),
        ("DLEDGER_RETENTION_BYTES=1\nDLEDGER_RETENTION_BYTES=2", "occurs twice"),
        ("retention", "not of the form NAME=VALUE"),
    ],
)
def test_a_file_with_a_mistake_is_refused(text: str, reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        overlay(SETTINGS, text)
