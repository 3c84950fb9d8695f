"""Pages with bodies: a group that has an administration token gives them to auditors alone."""

import http.client
import logging
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from aiohttp.typedefs import Handler, Middleware
from prometheus_client import CollectorRegistry

from dledger_client.client import DLedgerClient
from dledger_formats.admin_tokens import AdminTokens
from dledger_formats.http.status import StorageState
from dledger_formats.log import disk
from dledger_formats.settings import NodeSettings
from dledger_node.http import auditors, pages
from dledger_node.http.auditors import READ_AGAIN_S, RESOLVED_FOR_S, Auditors, Lack
from dledger_node.http.outage import Outage
from dledger_node.shell.token_file import TokenFile
from dledger_store_files.damage import flip
from tools.groups.node_group import NodeGroup
from tools.groups.waiting import wait_for

OLD, NEW, FOREIGN = "old-" * 10, "new-" * 10, "foreign-" * 5
SEGMENT = f"/segments/data/{'0' * 20}"
STORED = f"/stored/{'0' * 20}?at=0&size=10"
BODIES = (SEGMENT, STORED, "/files/currterm")
SEGMENT_BYTES = 1 << 16


def audit_token(token: str) -> str:
    return AdminTokens(accepted=(token,)).for_audits().current


def write(file: Path, *tokens: str, version: str = "1") -> None:
    """Replace the tokens as Kubernetes does: the new content appears at once."""
    new = file.with_name("new")
    new.write_text(AdminTokens(accepted=tokens, version=version).to_text())
    new.replace(file)


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Member:
    """The pages of a member that is out of service, and so has no file to give."""

    def __init__(self, tokens: TokenFile, *peer_hosts: str) -> None:
        self.clock = Clock()
        self.asks_from = "127.0.0.1"
        self.auditors = Auditors(tokens, peer_hosts, clock=self.clock)
        settings = NodeSettings(
            group="g", self_id="n0", peers={"n0": "127.0.0.1:1"}, store_base_dir="/nowhere"
        )
        outage = Outage(settings, "1", state=StorageState.DAMAGED, reason="it is damaged")
        self.app = pages.application(
            outage, CollectorRegistry(), [self._from_elsewhere], self.auditors
        )

    @property
    def _from_elsewhere(self) -> Middleware:
        @web.middleware
        async def from_elsewhere(request: web.Request, handler: Handler) -> web.StreamResponse:
            return await handler(request.clone(remote=self.asks_from))

        return from_elsewhere

    async def ask(self, path: str, header: str = "") -> tuple[int, str]:
        headers = {"Authorization": header} if header else {}
        async with (
            TestClient(TestServer(self.app)) as client,
            client.get(path, headers=headers) as answer,
        ):
            if answer.status == 401:
                assert answer.headers["WWW-Authenticate"].startswith("Bearer")
            return answer.status, await answer.text()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write(tmp_path / "tokens", OLD)
    return tmp_path / "tokens"


async def test_pages_with_bodies_refuse_whoever_has_no_token_and_say_what_is_missing(
    file: Path,
) -> None:
    member = Member(TokenFile(str(file)))

    for path in BODIES:
        status, text = await member.ask(path)
        assert status == 401
        assert "Authorization: Bearer" in text
        assert "--token-file" in text
    for path in ("/status", "/manifest", "/metrics", "/healthz", "/leader"):
        assert (await member.ask(path))[0] == 200

    assert member.auditors.refused == {Lack.MISSING: len(BODIES)}


@pytest.mark.parametrize(
    "token",
    [audit_token(FOREIGN), OLD, "é", "x", "x" * 4096],
    ids=["of another group", "the administration token", "odd", "short", "long"],
)  # fmt: skip
async def test_a_wrong_token_is_refused(file: Path, token: str) -> None:
    member = Member(TokenFile(str(file)))

    status, text = await member.ask(SEGMENT, f"Bearer {token}")

    assert (status, member.auditors.refused) == (401, {Lack.WRONG: 1})
    assert "not one of this group's" in text


@pytest.mark.parametrize("header", ["", f"Basic {'x' * 40}", audit_token(OLD)])
async def test_other_ways_to_send_a_token_count_as_none(file: Path, header: str) -> None:
    member = Member(TokenFile(str(file)))

    assert (await member.ask(SEGMENT, header))[0] == 401
    assert member.auditors.refused == {Lack.MISSING: 1}


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
async def test_the_audit_token_admits_to_each_page(file: Path, scheme: str) -> None:
    member = Member(TokenFile(str(file)))

    for path in BODIES:
        assert (await member.ask(path, f"{scheme} {audit_token(OLD)}"))[0] == 404

    assert not member.auditors.refused


async def test_a_group_without_tokens_lets_everybody_read() -> None:
    member = Member(TokenFile(""))

    for path in BODIES:
        assert (await member.ask(path))[0] == 404
        assert (await member.ask(path, f"Bearer {audit_token(FOREIGN)}"))[0] == 404


async def test_a_member_that_has_read_no_token_refuses_and_reads_it_once_it_is_there(
    tmp_path: Path,
) -> None:
    member = Member(TokenFile(str(tmp_path / "tokens")))

    status, text = await member.ask(SEGMENT, f"Bearer {audit_token(OLD)}")
    assert (status, member.auditors.refused) == (401, {Lack.NOT_READY: 1})
    assert "could not read" in text

    write(tmp_path / "tokens", OLD)
    member.clock.now_s += READ_AGAIN_S
    assert (await member.ask(SEGMENT, f"Bearer {audit_token(OLD)}"))[0] == 404


async def test_tokens_are_replaced_while_a_member_is_out_of_service(file: Path) -> None:
    """Nothing else reads the file then."""
    member = Member(TokenFile(str(file)))
    old, new = (f"Bearer {audit_token(token)}" for token in (OLD, NEW))
    assert (await member.ask(SEGMENT, new))[0] == 401

    write(file, OLD, NEW, version="2")
    assert (await member.ask(SEGMENT, new))[0] == 401, "the file is read once a second at most"
    member.clock.now_s += READ_AGAIN_S
    assert (await member.ask(SEGMENT, new))[0] == 404
    assert (await member.ask(SEGMENT, old))[0] == 404
    write(file, NEW, version="3")
    member.clock.now_s += READ_AGAIN_S
    assert (await member.ask(SEGMENT, f"Bearer {audit_token(FOREIGN)}"))[0] == 401
    assert (await member.ask(SEGMENT, old))[0] == 401
    assert (await member.ask(SEGMENT, new))[0] == 404


def test_a_token_file_that_is_lost_again_is_logged_again_and_so_is_its_return(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    tokens, away = TokenFile(str(file)), file.with_name("away")

    for _ in range(2):
        file.rename(away)
        tokens.read()
        tokens.read()
        away.rename(file)
        tokens.read()

    assert caplog.text.count("cannot read the administration tokens") == 2
    assert caplog.text.count(f"{file} is valid again") == 2


class Dns:
    """Tells the addresses of hosts, or fails, or hangs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.told: dict[str, list[str]] = {}
        self.asked: list[str] = []
        self.hangs = threading.Event()
        self.goes_on = threading.Event()
        monkeypatch.setattr(socket, "getaddrinfo", self._getaddrinfo)

    def _getaddrinfo(self, host: str, *_: object, **__: object) -> list[object]:
        self.asked.append(host)
        if self.hangs.is_set():
            assert self.goes_on.wait(60)
        if host not in self.told:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return [(0, 0, 0, "", (each, 0)) for each in self.told[host]]


@pytest.fixture
def dns(monkeypatch: pytest.MonkeyPatch) -> Dns:
    return Dns(monkeypatch)


async def test_a_member_without_a_token_gets_stored_bytes_alone_by_its_address(
    file: Path, dns: Dns
) -> None:
    """It may be of an earlier release, which sends none."""
    dns.told["n1"] = ["::ffff:198.18.0.1"]
    member = Member(TokenFile(str(file)), "n1", "no-such-host.invalid")
    member.asks_from = "198.18.0.1"

    assert (await member.ask(STORED))[0] == 404
    assert (await member.ask(SEGMENT))[0] == 401
    assert (await member.ask("/files/currterm"))[0] == 401


async def test_the_address_of_a_member_may_change_and_the_dns_may_fail(
    file: Path, dns: Dns
) -> None:
    dns.told["n1"] = ["198.18.0.1"]
    member = Member(TokenFile(str(file)), "n1")
    member.asks_from = "198.18.0.2"
    assert (await member.ask(STORED))[0] == 401

    dns.told["n1"] = ["198.18.0.1", "198.18.0.2"]
    assert (await member.ask(STORED))[0] == 401, "addresses are kept for a while"
    member.clock.now_s += RESOLVED_FOR_S
    assert (await member.ask(STORED))[0] == 404

    del dns.told["n1"]
    member.clock.now_s += RESOLVED_FOR_S
    assert (await member.ask(STORED))[0] == 404, "the last addresses that were told"


async def test_an_address_that_every_process_of_the_machine_has_is_no_member(
    file: Path, dns: Dns
) -> None:
    dns.told["n1"] = ["127.0.0.1"]
    member = Member(TokenFile(str(file)), "n1")

    assert (await member.ask(STORED))[0] == 401


async def test_the_dns_is_asked_once_at_a_time_in_threads_for_which_no_member_waits(
    file: Path, dns: Dns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auditors, "RESOLVE_S_MAX", 0.01)
    member = Member(TokenFile(str(file)), "n1")
    member.asks_from = "198.18.0.1"
    dns.hangs.set()
    try:
        for _ in range(3):
            assert (await member.ask(STORED))[0] == 401
            member.clock.now_s += RESOLVED_FOR_S

        assert dns.asked == ["n1"]
        asking = [each for each in threading.enumerate() if each.name == "peer-addresses"]
        assert [each.daemon for each in asking] == [True]
    finally:
        dns.goes_on.set()


class GuardedGroup(NodeGroup):
    """A group with tokens. Each member listens on an address of its own, and sends from 127.0.0.1,
    so that no member knows another one by its address.
    """

    def __init__(self, folder: Path, **settings: object) -> None:
        self.token_file = folder / "tokens"
        write(self.token_file, OLD)
        super().__init__(folder, admin_token_file=str(self.token_file), **settings)

    def host(self, member: str) -> str:
        return f"127.0.0.{10 + int(member[1:])}"

    def read(self, member: str, path: str, token: str = "") -> tuple[int, bytes]:
        headers = {"Authorization": f"Bearer {audit_token(token)}"} if token else {}
        connection = http.client.HTTPConnection(self.host(member), self.http_ports[member], 5)
        try:
            connection.request("GET", path, headers={"Range": "bytes=0-9"} | headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def counter(self, member: str, pattern: str) -> float:
        page = self.read(member, "/metrics")[1].decode()
        return sum(map(float, re.findall(rf"(?m)^dledger_node_{pattern} (\S+)", page)))


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[GuardedGroup]:
    with GuardedGroup(
        tmp_path,
        segment_size_bytes=SEGMENT_BYTES,
        index_segment_size_bytes=1 << 12,
        scrub_interval_s=1,
    ) as group:
        yield group


async def append(group: NodeGroup, count: int) -> None:
    async with DLedgerClient(group.servers, "g") as client:
        await client.append_batch([bytes(1000)] * count, deadline_s=30)


@pytest.mark.group
async def test_strangers_read_no_body_from_a_member_and_auditors_do(guarded: GuardedGroup) -> None:
    await append(guarded, 100)
    leader = guarded.master()

    assert [guarded.read(leader, path)[0] for path in BODIES] == [401] * 3
    assert guarded.read(leader, SEGMENT, FOREIGN)[0] == 401
    assert guarded.read(leader, SEGMENT, OLD)[0] == 206
    assert guarded.read(leader, STORED, OLD)[0] == 200

    assert guarded.counter(leader, r'audit_requests_refused_total\{reason="missing"\}') == 3
    assert guarded.counter(leader, r'audit_requests_refused_total\{reason="wrong"\}') == 1
    log = guarded.log(leader)
    assert f"refused {SEGMENT} to 127.0.0.1" in log
    assert not any(audit_token(token) in log for token in (OLD, FOREIGN))


@pytest.mark.group
@pytest.mark.parametrize(
    "accepted", [(OLD,), (OLD, NEW), (NEW, OLD)], ids=["settled", "introduced", "replaced"]
)
async def test_members_mend_from_each_other_while_tokens_are_demanded_and_replaced(
    guarded: GuardedGroup, accepted: tuple[str, ...]
) -> None:
    await append(guarded, 200)
    write(guarded.token_file, *accepted, version="2")
    for member in guarded.running():
        guarded.wait_for_status(
            member, lambda view: view.admin_tokens_version == "2", "has the tokens"
        )
    hurt = next(member for member in guarded.running() if member != guarded.master())
    flip(guarded.store_folder(hurt) / disk.DATA_FOLDER, 5000, segment_bytes=SEGMENT_BYTES)

    wait_for(lambda: guarded.counter(hurt, "mended_ranges_total") == 1, "the damage is mended")

    refused = [
        guarded.counter(member, r"audit_requests_refused_total\{.*\}") for member in guarded.peers
    ]
    assert refused == [0, 0, 0]
