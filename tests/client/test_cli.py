"""`dledger get`, `group` and `status`: output and exit codes."""

import base64
import http.server
import json
import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from dledger_client.cli import main
from dledger_client.cluster.connection import Connection
from dledger_fake_server.group import Group
from dledger_formats.http.status import FlushDiskType, NodeStatus, Role
from dledger_formats.protocol.codes import RequestCode

UNREACHABLE_SERVER = "127.0.0.1:1"
pytestmark = pytest.mark.usefixtures("group_in_environment")


def json_lines(capsys: pytest.CaptureFixture[str]) -> list[Any]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


# get


def test_get_writes_the_bodies_unchanged(
    group_in_thread: Group, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    group_in_thread.log = [b"zero", b"\xff\x00", b"two", b"three"]

    assert main(["get", "--first", "1", "--last", "2"]) == 0
    assert capfdbinary.readouterr().out == b"\xff\x00\ntwo\n"


@pytest.mark.parametrize(("last", "count"), [([], 1), (["--last", "end"], 3)])
def test_get_with_first_reads_one_entry_or_to_the_end(
    group_in_thread: Group,
    capfdbinary: pytest.CaptureFixture[bytes],
    last: list[str],
    count: int,
) -> None:
    group_in_thread.log = [b"x"] * 4

    main(["get", "--first", "1", *last])

    assert capfdbinary.readouterr().out == b"x\n" * count


def test_get_writes_json_with_text_bodies_as_text(
    group_in_thread: Group, capsys: pytest.CaptureFixture[str]
) -> None:
    group_in_thread.log = ["ü".encode(), b"\xff"]

    main(["get", "--first", "0", "--last", "1", "--output", "json"])

    text, binary = json_lines(capsys)
    assert text == {"index": 0, "term": 1, "pos": 0, "body": "ü"}
    assert base64.b64decode(binary["bodyBase64"]) == b"\xff"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--first", "9"], 4, "there is no entry 9: "),
        (["--first", "-1"], 2, "-1 is no index; an index is 0 to"),
        (["--first", "3", "--last", "2"], 2, "the range 3..2 is empty"),
        (["--first", "0", "--last", "soon"], 2, "is no index; expected INDEX"),
        (["3..x"], 2, "is no index; expected INDEX"),
        (["7..3"], 2, "the range 7..3 is empty"),
        (["7", "--first", "3"], 2, "once"),
        ([], 2, "once"),
        (["--first", "0", "--servers", "nowhere"], 2, "HOST:PORT"),
        (["--first", "0", "--group", ""], 2, "DLEDGER_CLIENT_GROUP"),
        (["--first", "0", "--group", "other"], 4, "does not belong to group other"),
        (
            ["--first", "0", "--servers", UNREACHABLE_SERVER, "--deadline", "0.1"],
            5,
            "cannot be reached",
        ),
    ],
)
def test_a_failed_get_prints_an_error_and_sets_the_exit_code(
    capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, message: str
) -> None:
    assert main(["get", *arguments]) == code
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--group", "--group=g", "--json"])
def test_an_option_before_the_command_is_told_where_it_belongs(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main([option, "g", "get", "0"])

    name = option.partition("=")[0]
    assert caught.value.code == 2
    assert capsys.readouterr().err == (
        f"dledger: {name} is before the command; options come after it, as in `dledger get 7 "
        "--group g`; see dledger --help\n"
    )


@pytest.mark.parametrize("asked", ["..", "..5", "0...5"])
def test_a_wrong_range_is_told_as_it_was_given(
    asked: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["get", asked]) == 2
    assert f"dledger: '{asked}' is no index; expected" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [["put"], ["append", "--in-flight", "0"], ["append", "--deadline", "nan"],
     ["tail", "--from", "-1"], ["transfer"], ["completion", "csh"]],
)  # fmt: skip
def test_an_invalid_command_line_prints_one_line(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)

    err = capsys.readouterr().err
    assert (caught.value.code, err.count("\n")) == (2, 1)
    assert "--help" in err


@pytest.mark.parametrize(
    ("asked", "indexes"), [("1", [1]), ("1..2", [1, 2]), ("1..", [1, 2, 3]), ("2..end", [2, 3])]
)
def test_get_accepts_an_index_or_a_range(
    group_in_thread: Group, capsys: pytest.CaptureFixture[str], asked: str, indexes: list[int]
) -> None:
    group_in_thread.log = [b"x"] * 4

    assert main(["get", asked, "-o", "json"]) == 0
    assert [entry["index"] for entry in json_lines(capsys)] == indexes


@pytest.mark.parametrize("output", [[], ["-o", "json"]])
def test_a_range_that_begins_beyond_the_end_has_no_entry(
    group_in_thread: Group, capsys: pytest.CaptureFixture[str], output: list[str]
) -> None:
    assert main(["get", "1..", *output]) == 4
    assert capsys.readouterr() == ("", "dledger: there is no entry 1: the log is empty\n")

    group_in_thread.log = [b"x"] * 4

    assert main(["get", "5..", *output]) == 4
    message = "dledger: there is no entry 5: the log holds the entries 0 to 3\n"
    assert capsys.readouterr() == ("", message)


@pytest.mark.parametrize("output", [[], ["-o", "json"]])
def test_a_range_that_begins_at_the_end_is_empty(
    group_in_thread: Group, capsys: pytest.CaptureFixture[str], output: list[str]
) -> None:
    assert main(["get", "0..", *output]) == 0

    group_in_thread.log = [b"x"] * 4

    assert main(["get", "4..", *output]) == 0
    assert capsys.readouterr() == ("", "")


def test_an_empty_range_at_the_end_of_a_log_of_java_takes_few_requests(
    group_in_thread: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search for the bounds of the log would take thirty, each time that a script asks."""
    group_in_thread.log = [b"x"] * 4000
    for member in group_in_thread.members.values():
        member.supports_follow = False
    codes: list[int] = []
    send = Connection.send

    def counted(connection: Connection, code: int, *arguments: Any) -> None:
        codes.append(code)
        send(connection, code, *arguments)

    monkeypatch.setattr(Connection, "send", counted)

    assert main(["get", "4000.."]) == 0
    assert codes.count(RequestCode.GET) == 2


# group and status


def test_group_prints_the_members_and_the_leader(
    group_in_thread: Group, capsys: pytest.CaptureFixture[str]
) -> None:
    group_in_thread.elect("n1")

    assert main(["group"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows == [
        ["MEMBER", "ADDRESS", "ROLE"],
        ["n0", group_in_thread["n0"].address],
        ["n1", group_in_thread["n1"].address, "leader"],
        ["n2", group_in_thread["n2"].address],
    ]


def test_group_prints_json(group_in_thread: Group, capsys: pytest.CaptureFixture[str]) -> None:
    main(["group", "--output", "json"])

    [printed] = json_lines(capsys)
    assert (printed["group"], printed["leader"], sorted(printed["peers"])) == (
        "g0",
        "n0",
        ["n0", "n1", "n2"],
    )


def status_of(self_id: str, *, role: Role, end: int, ready: bool = True) -> NodeStatus:
    return NodeStatus(
        group="g0", self_id=self_id, role=role, term=4, leader_id="n0",
        master=role is Role.LEADER, ready=ready, reason="" if ready else "catching up",
        broker_id=0, ledger_begin_index=0, ledger_end_index=end, ledger_end_term=4,
        committed_index=end, durable_index=end, flush_disk_type=FlushDiskType.SYNC_FLUSH,
        peers={}, version="0",
    )  # fmt: skip


@pytest.fixture
def status_pages() -> Iterator[list[tuple[str, int]]]:
    """The status pages of two members, and a server without one."""
    pages = [
        (200, status_of("n0", role=Role.LEADER, end=100).to_json()),
        (200, status_of("n1", role=Role.FOLLOWER, end=93, ready=False).to_json()),
        (404, b"no such page"),
    ]
    servers = [_page_server(code, body) for code, body in pages]
    for server in servers:
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
    yield [("127.0.0.1", server.server_port) for server in servers]
    for server in servers:
        server.shutdown()
        server.server_close()


def _page_server(code: int, body: bytes) -> http.server.ThreadingHTTPServer:
    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(code if self.path == "/status" else 400)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    return http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)


def test_status_prints_a_table_of_the_members(
    status_pages: list[tuple[str, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    addresses = [f"{host}:{port}" for host, port in status_pages]

    assert main(["status", "--http", ",".join([*addresses, UNREACHABLE_SERVER])]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[1] == ["n0", "leader", "4", "n0", "100", "100", "0", "yes", addresses[0]]
    assert rows[2] == [
        "n1", "follower", "4", "n0", "93", "93", "7", "no", addresses[1],
    ]  # fmt: skip
    assert rows[3][-1] == addresses[2]
    assert rows[4][-1] == UNREACHABLE_SERVER
    assert rows[5] == ["n1", "is", "not", "ready:", "catching", "up"]
    assert rows[6][-2:] == ["HTTP", "404"]
    assert "refused" in rows[7]


def test_status_prints_the_json_of_the_members(
    status_pages: list[tuple[str, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    host, port = status_pages[0]

    main(["status", "--http", f"{host}:{port},{UNREACHABLE_SERVER}", "--output", "json"])

    [[answered, failed]] = json_lines(capsys)
    assert answered == {"address": f"{host}:{port}"} | json.loads(
        status_of("n0", role=Role.LEADER, end=100).to_json()
    )
    assert "refused" in failed["problem"]


def test_status_finds_the_members_by_metadata_and_names_each_once(
    status_pages: list[tuple[str, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    _, port = status_pages[0]

    # All members are on one host, so this is the port of one of them.
    assert main(["status", "--http-port", str(port)]) == 0
    printed = capsys.readouterr()
    rows = printed.out.splitlines()
    assert sum("leader" in row for row in rows) == 1
    assert sum("this is the page of n0; give" in row for row in rows) == 2
    [hint] = printed.err.splitlines()
    assert f"n0, n1, n2 would all have their pages at 127.0.0.1:{port}" in hint
    assert "--http" in hint


def test_status_of_another_group_is_refused(
    status_pages: list[tuple[str, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    host, port = status_pages[0]

    assert main(["status", "--http", f"{host}:{port}", "--group", "other"]) == 4
    assert "this is a member of group g0, not other" in capsys.readouterr().out


def test_status_exits_with_5_if_no_member_answers() -> None:
    assert main(["status", "--http", UNREACHABLE_SERVER]) == 5


def test_a_command_without_group_options_or_environment_is_a_usage_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("DLEDGER_CLIENT_SERVERS")

    assert "DLEDGER_CLIENT_SERVERS" not in os.environ
    assert main(["group"]) == 2
