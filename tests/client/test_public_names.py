"""What programs import from `dledger_client`."""

import inspect
import re
from pathlib import Path

import dledger_client
from dledger_client import errors
from dledger_client.append import outcomes

DOCS = Path(__file__).parents[2] / "docs" / "client.md"


def test_every_listed_name_exists_and_the_list_is_sorted() -> None:
    assert all(hasattr(dledger_client, name) for name in dledger_client.__all__)
    assert sorted(dledger_client.__all__) == dledger_client.__all__


def test_every_error_and_every_outcome_is_exported() -> None:
    defined = {
        name
        for module in (errors, outcomes)
        for name, value in vars(module).items()
        if inspect.isclass(value) and value.__module__ == module.__name__
    }

    assert {"ClientError", "Unknown"} < defined
    assert defined <= set(dledger_client.__all__)


def test_the_codes_of_refusals_are_exported() -> None:
    refusal = errors.RefusedError(dledger_client.DLedgerResponseCode.DISK_FULL, "full")

    assert refusal.code is dledger_client.DLedgerResponseCode.DISK_FULL


def test_the_documentation_names_every_exported_name() -> None:
    named = set(re.findall(r"`(\w+)`", DOCS.read_text()))

    assert not set(dledger_client.__all__) - named
