"""`dledger get` and `tail`: the bytes that each output format writes."""

import msgspec
import pytest

from dledger_client.cli import main
from dledger_fake_server.group import Group
from dledger_formats.log import disk

pytestmark = pytest.mark.usefixtures("group_in_environment")


@pytest.fixture(autouse=True)
def _log(group_in_thread: Group) -> None:
    """An entry of a leader's own, a text, and bytes that hold a newline and a zero."""
    group_in_thread.log = [b"", b"one", b"\xff\n\0"]
    stored = group_in_thread.stored_entry
    group_in_thread.entry = lambda index: msgspec.structs.replace(
        stored(index), magic=disk.NORMAL if index else disk.NOOP
    )


@pytest.mark.parametrize(
    ("options", "written"),
    [
        ([], b"one\n\xff\n\0\n"),
        (["-o", "bytes"], b"one\xff\n\0"),
        (["-0"], b"one\0\xff\n\0\0"),
        (["--delimiter", ""], b"one\xff\n\0"),
        (["--delimiter", r"\t\\;"], b"one\t\\;\xff\n\0\t\\;"),
        (["--format", r"%i/%t/%c/%s %b%%\n"], b"1/1/0/3 one%\n2/1/0/3 \xff\n\0%\n"),
    ],
)
@pytest.mark.parametrize("command", [["get", "0.."], ["tail", "--from", "0", "--count", "2"]])
def test_bodies_are_written_byte_for_byte(
    command: list[str],
    options: list[str],
    written: bytes,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    assert main([*command, *options]) == 0
    assert capfdbinary.readouterr().out == written


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-o", "json", "-0"], "-o json takes no --delimiter"),
        (["-o", "bytes", "--format", "%b"], "-o bytes takes no --delimiter"),
        (["--format", "%x"], "--format has no field %x; the fields are %i, %t, %c, %s, %b, %%"),
        (["--format", "%"], "--format has no field %;"),
    ],
)
def test_formats_that_contradict_each_other_are_a_usage_error(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["get", "1", *options]) == 2
    assert message in capsys.readouterr().err


def test_a_read_of_entries_that_leaders_append_for_themselves_says_so(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    assert main(["get", "0"]) == 0
    shown = capfdbinary.readouterr()
    assert shown.out == b""
    assert b"leaders append such entries for themselves; -o json shows them" in shown.err

    for shows_some in (["get", "0.."], ["get", "0", "-o", "json"]):
        assert main(shows_some) == 0
        assert capfdbinary.readouterr().err == b""


def test_an_unknown_escape_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["get", "1", "--delimiter", r"\q"])

    assert caught.value.code == 2
    assert r"\q is no escape" in capsys.readouterr().err
