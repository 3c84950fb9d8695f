"""`dledger-node store adopt` on the folder of a survivor whose group is gone."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from dledger_formats.peers import parse_peers
from dledger_node.store.log.log_store import LogStore
from dledger_node.store_command import adopt, command
from dledger_node.store_command.command import ExitCode
from dledger_node.store_command.verify import verify
from dledger_store_files.command import Command
from dledger_store_files.contents import files_under, flush

PEERS = "n0-127.0.0.1:1;n1-127.0.0.1:1;n2-127.0.0.1:1"
OpenStore = Callable[..., LogStore]


@pytest.mark.parametrize("consent", [[], ["--yes"]])
def test_a_survivor_that_is_not_among_its_peers_is_not_adopted(
    store_command: Command, written: Path, consent: Sequence[str]
) -> None:
    before = files_under(written)
    others = PEERS.partition(";")[2]

    code = store_command("adopt", written, "--group", "g", "--peers", others, *consent)

    assert code == ExitCode.FAILED
    assert store_command.error == (
        "dledger-node: nothing was changed: --peers has no address of n0\n"
    )
    assert files_under(written) == before


def told(folder: Path) -> str:
    report = verify(folder, lambda _: None)
    return "\n".join(adopt.check(report, group="g", peers=parse_peers(PEERS)).describe())


def test_a_survivor_tells_the_entries_that_it_does_not_know_as_committed(written: Path) -> None:
    text = told(written)

    assert "every entry after 39, and what the others have in place of" in text
    assert "its entries from 36 to 39 become part of the log" in text


def test_a_survivor_whose_entries_are_all_committed_tells_no_range_of_others(
    open_store: OpenStore, written: Path
) -> None:
    store = open_store()
    flush(store)
    store.save_checkpoint(39)
    store.close()

    text = told(written)

    assert "It knows that all of them are committed." in text
    assert "What may be lost: every entry after 39. Clients may have acknowledgments" in text
    assert "become part of the log" not in text
    assert "from 40" not in text


def test_a_survivor_of_a_group_of_one_tells_of_no_others(written: Path) -> None:
    report = verify(written, lambda _: None)

    text = adopt.check(report, group="g", peers={"n0": "127.0.0.1:1"}).describe()

    assert not any("can never return" in sentence for sentence in text)


def test_the_help_tells_how_a_report_without_consent_ends(
    store_command: Command, written: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files_under(written)

    asked = ("--group", "g", "--peers", PEERS, "--http-peers", PEERS)

    assert store_command("adopt", written, *asked) == ExitCode.FAILED
    assert "nothing was changed: pass --yes" in store_command.error
    assert files_under(written) == before
    with pytest.raises(SystemExit):
        command.main(["adopt", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "1 nothing was changed: without --yes, or because it is refused" in text
