"""docs/wrong-specs.md: each wrong spec with the answer of a real API server.

`python -m pytest tests/kube/test_wrong_specs.py --write-pages` writes it.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import yaml

from api_server.client import ApiServer, RefusedError
from api_server.objects import Object, check, check_change, group, stored
from dledger_kube.wrong_specs.audits import WRONG_AUDITS
from dledger_kube.wrong_specs.brokers import WRONG_BROKER_CHANGES, WRONG_BROKERS
from dledger_kube.wrong_specs.changes import WRONG_CHANGES
from dledger_kube.wrong_specs.groups import WRONG_GROUPS
from dledger_kube.wrong_specs.pods import WRONG_PODS
from dledger_kube.wrong_specs.settings import WRONG_SETTINGS

PAGE: Final = Path(__file__).resolve().parents[4] / "docs" / "wrong-specs.md"
WRONG_NAMES: Final[dict[str, str]] = {
    "a name of 41 characters": "g" * 41,
    "a name that begins with a digit": "1st",
}
ACCEPTED: Final = "accepted"

_NAME: Final = "flights"
_INTRODUCTION: Final = """\
# What the API server answers to a wrong spec

<!-- Written by `python -m pytest tests/kube/test_wrong_specs.py --write-pages`. -->

Each row is a DLedgerGroup that somebody might apply, and the answer of a real API server. None of
them is stored, so nothing that runs is changed. `docs/reference-crd.md` lists the rules. What the
API server cannot know, such as a missing StorageClass, the condition `Ready` says.
"""


def render(server: ApiServer) -> str:
    """Ask the server about every wrong spec, and return the page as Markdown."""
    lines = [_INTRODUCTION]
    for title, wrong in (
        ("Sizes, times, labels, windows and preferences", WRONG_GROUPS),
        ("Settings of members", WRONG_SETTINGS),
        ("Audits", WRONG_AUDITS),
        ("Pods and Services", WRONG_PODS),
        ("Brokers", WRONG_BROKERS),
    ):
        lines += _table(title, wrong, lambda spec: check(server, group(_NAME, **spec)))
    names = {what: {"metadata": {"name": name}} for what, name in WRONG_NAMES.items()}
    lines += _table("Names", names, lambda sent: check(server, group(sent["metadata"]["name"])))
    for before, changes in (
        ({"storage": {"size": "30Gi", "storageClassName": "slow"}}, WRONG_CHANGES),
        ({"broker": {"brokerName": "orders"}}, WRONG_BROKER_CHANGES),
    ):
        lines += _changes(server, before, changes)
    return "\n".join(lines)


def _changes(server: ApiServer, before: Object, changes: Mapping[str, Object]) -> list[str]:
    with stored(server, group(**before)) as made:
        return _table(
            f"Changes of a group with `{_flow(before)}`",
            changes,
            lambda change: check_change(server, made, {"spec": change}),
        )


def _table(title: str, wrong: Mapping[str, Object], send: Callable[[Object], object]) -> list[str]:
    rows = [f"| {what} | `{_flow(sent)}` | {_answer(send, sent)} |" for what, sent in wrong.items()]
    return [f"## {title}\n", "| What is wrong | Sent | Answer |", "| --- | --- | --- |", *rows, ""]


def _flow(sent: Object) -> str:
    """Return an object as one line of YAML."""
    text = yaml.safe_dump(sent, default_flow_style=True, sort_keys=False, width=10_000)
    return text.strip().removeprefix("{").removesuffix("}").replace("|", "\\|")


def _answer(send: Callable[[Object], object], sent: Object) -> str:
    """Return the server's answer, without the name of the object."""
    try:
        send(sent)
    except RefusedError as error:
        _, _, reason = str(error).rpartition(" is invalid: ")
        return reason.replace("|", "\\|")
    return ACCEPTED
