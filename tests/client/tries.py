"""Runs `dledger` in situations that go wrong, and prints what a person sees: `tries.txt`.

    .venv/bin/python -m tests.client.tries > /tmp/tries.txt && mv /tmp/tries.txt tests/client/

Run it and read the difference after a change: every message must say what happened, to which
object, and what to do. Addresses, times, names of members and folders are masked.
`test_tries.py` repeats the tries, and compares.
"""

import contextlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TextIO

from dledger_client.errors import RefusedError
from dledger_client.sync import BlockingClient
from dledger_group.mounts import volume_of_8_mib
from tools.groups.node_group import NodeGroup

COMMAND = [
    sys.executable, "-c", "import sys; from dledger_client.cli import main; sys.exit(main())",
]  # fmt: skip
DEADLINE_S = 1.4  # long enough for an election, short enough for many tries
PARALLEL = 6
TIMEOUT_S = 60
HUGE = "9" * 30
NO_PRIVILEGE = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
EVERY_COMMAND = [
    "append --body x", "get 0", "tail --last 1 --count 1", "export -", "import one.export",
    "register get 1", "register set 1 2", "group", "member list", "member add n7",
    "status", "health", "wait", "transfer n1", "bench --seconds 0.1 --warm-up 0.1",
]  # fmt: skip
ASKS_PAGES = ("status", "health", "wait")
WITHOUT_DEADLINE = ("status", "completion", "audit-token", "group local")
ALONE = "transfer"
"""Run after the other commands, which would see that there is no leader for a moment."""
FROZEN = "FROZEN"
"""The id of the member that is frozen."""
HAS_OWN_GROUP = ("completion", "audit-token", "group local")
SHOWS_FIGURES = ("export", "bench")
NUMBERS = [
    f"get {HUGE}", "get -1", "get 5..3", "get x", f"tail --count {HUGE}", "tail --last 0",
    f"append --in-flight {HUGE} --body x", "append --body x --deadline 0",
    "append --body x --deadline nan", f"export --from {HUGE} -", "register get 9999999999",
    "bench --seconds 1e9", "bench --body-bytes 99999999", "health --max-lag -1",
    "append --body x --producer ''", "get 1000", "get 1000..",
]  # fmt: skip
FILES = [
    "append secret.txt", "append nowhere.txt", "append .", "import secret.txt", "import lines.txt",
    "import cut.export", "import flipped.export", "export nowhere/all.export",
    "export locked/all.export", "export lines.txt", "export --folder . all.export",
    "append --producer p lines.txt",
]  # fmt: skip
FULL = [
    "append --body x --deadline 5", "export - --last 1",
    *(one for one in EVERY_COMMAND if one.split()[0] not in ("append", "export", "transfer")),
    "transfer n0",
]  # fmt: skip
RECORDS = [
    "append --producer full lines.txt", "import --producer full one.export",
    "append --producer broken --body x", "append --producer secret --body x",
    "append --producer folder --body x", "append --producer other --body x",
    "append --producer locked --body x",
]  # fmt: skip
PROFILES = ["append --body x", "status", "get 0 --profile nowhere", "transfer n1", "audit-token"]
TOKENS = ["nowhere.token", "secret.txt", "empty.token", "lines.txt", "."]
LOCAL_GROUPS = [
    "group local --group ''", "group local --members 2", "group local --members 1000000",
    "group local --port 65535", "group local --port 99999",
    "group local --data lines.txt", "group local --data locked/data", "group local --data locked",
    "group local --data .", "group local --seed nowhere", "group local --seed .",
    "group local --broker-port 9876", "group local --broker --state-machine register",
]  # fmt: skip
SHELLS = ["completion", "completion bash zsh"]
WRITES = [
    "get 1", "get 1 -o json", "export -", "append -o json --body x", "group", "status",
    "append --body x", "tail --last 1 --count 1", "member list", "health", "wait",
    "completion bash", "audit-token --admin-token-file good.token", "--help", "--version",
    "import one.export", "register get 1", "register set 1 2", "member add n7", "transfer n1",
    "bench --seconds 0.1 --warm-up 0.1",
]  # fmt: skip
PATIENT = [
    "append --body x", "get 1", "group", "member list", "register get 1", "health", "wait",
    "tail --from 1 --count 1", "export - --last 1", "bench --seconds 4 --warm-up 0.1",
    "import one.export", "register set 1 2", "member add n7", f"transfer {FROZEN}",
]  # fmt: skip
MASKS = (
    (r"\b127\.0\.0\.1:\d+", "ADDRESS"),
    (r"\bn[0-9]\b", "nX"),
    (r"\d+(\.\d+)? (ms|s|appends/s)\b", r"N \2"),
    (r"(entry|record|entries|term|indexes|exported|acknowledged) +\d+( to \d+)?", r"\1 N"),
    (r"[0-9a-f]{8}-[0-9a-f-]{27}", "IDENTITY"),
)


class Place:
    """Where the tries run: a folder with files, and the environment of `dledger`."""

    def __init__(self, folder: Path, out: TextIO) -> None:
        self.folder = folder
        self.out = out
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("DLEDGER_")}
        self.environment |= {
            "XDG_STATE_HOME": str(folder / "state"), "COLUMNS": "80",
            "XDG_CONFIG_HOME": str(folder / "config"),
            "PYTHONPATH": os.pathsep.join(sys.path),
        }  # fmt: skip
        self.frozen = ""
        self.pages = ""
        """Where the members' pages are, for the commands that ask for them."""
        (folder / "lines.txt").write_text("one\ntwo\n")
        (folder / "secret.txt").write_text("secret\n")
        (folder / "secret.txt").chmod(0)
        (folder / "locked").mkdir(mode=0o555)
        (folder / "empty.token").touch()
        (folder / "good.token").write_text("a" * 40)

    def show(
        self, title: str, commands: Sequence[str], options: str, *, to: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        """Run commands with these options, and print what each one does."""
        print(f"\n## {title}", file=self.out)
        variables = {**self.environment, **(environment or {})}
        for is_alone in (False, True):
            chosen = [one for one in commands if one.startswith(ALONE) is is_alone]
            with ThreadPoolExecutor(1 if is_alone else PARALLEL) as pool:
                for text in pool.map(lambda one: self._try(one, options, to, variables), chosen):
                    print(text, file=self.out)

    def make_records(self) -> None:
        """Make records of producers that cannot be used."""
        records = self.folder / "state" / "dledger" / "producers" / "g"
        records.mkdir(parents=True, exist_ok=True)
        (records / "full.new").symlink_to("/dev/full")
        (records / "broken.json").write_text("{")
        (records / "secret.json").touch(mode=0)
        (records / "folder.json").mkdir()
        (records / "other.json").write_text(
            '{"group":"h","producer":1,"base":0,"acknowledged":0,"checksum":0,'
            '"is_complete":true,"witness":{"index":1,"term":1,"chain_crc":0}}'
        )
        (records / "locked.lock").touch(mode=0)

    def keep_export(self, group: NodeGroup) -> Path:
        """Export the group into the file that the tries import."""
        file = self.folder / "one.export"
        command = [*COMMAND, "export", *_options(group).split(), str(file)]
        subprocess.run(command, check=True, capture_output=True)
        return file

    def _try(self, command: str, options: str, to: str, variables: Mapping[str, str]) -> str:
        name = "group local" if command.startswith("group local") else command.split()[0]
        deadline = f"--deadline {DEADLINE_S}"
        if name in WITHOUT_DEADLINE or name.startswith("--") or "--deadline" in command:
            deadline = ""
        if name in HAS_OWN_GROUP or name.startswith("--"):
            options = ""
        pages = f"--http {self.pages}" if self.pages and name in ASKS_PAGES else ""
        given = f"{command} {options} {deadline} {pages}".replace(FROZEN, self.frozen)
        words = [word.strip("'") for word in given.split()]
        prefix = NO_PRIVILEGE if os.geteuid() == 0 else []
        shell = 'exec "$@"' + {"full": " > /dev/full", "": ""}.get(to, "")
        run = ["bash", "-c", shell, "bash", *prefix, *COMMAND, *words]
        with subprocess.Popen(
            run, cwd=self.folder, env=variables, stdin=subprocess.DEVNULL,
            stdout=_closed_pipe() if to == "closed" else subprocess.PIPE, stderr=subprocess.PIPE,
        ) as process:  # fmt: skip
            out, err = process.communicate(timeout=TIMEOUT_S)
        shown = (out or b"")[:2000].decode(errors="replace") if name not in SHOWS_FIGURES else ""
        lines = [*shown.splitlines(), *err.decode(errors="replace").splitlines()]
        described = "\n".join(f"    {self._masked(line)}".rstrip() for line in lines)
        return f"$ dledger {command}\n{described}\n    exit {process.returncode}".replace(
            "\n\n", "\n"
        )

    def _masked(self, line: str) -> str:
        line = line.replace(str(self.folder), "FOLDER")
        for pattern, replacement in MASKS:
            line = re.sub(pattern, replacement, line)
        return line[:300]


def _closed_pipe() -> int:
    """Return the writing end of a pipe whose reader has gone."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing


def _options(group: NodeGroup, members: Sequence[str] = ("n0", "n1", "n2")) -> str:
    servers = ",".join(group.peers[member] for member in members if member in group.peers)
    return f"--servers {servers} --group g"


def _pages(group: NodeGroup) -> str:
    return ",".join(f"127.0.0.1:{port}" for port in group.http_ports.values())


def main() -> None:
    """Print all tries, which takes a few minutes."""
    with tempfile.TemporaryDirectory() as name:
        place = Place(Path(name), sys.stdout)
        (place.folder / "three").mkdir()
        with NodeGroup(place.folder / "three") as group:
            show_what_repeats(place, group)
            show_what_varies(place, group)
        show_what_is_full(place)


def show_what_repeats(place: Place, group: NodeGroup) -> None:
    """Print the tries whose messages are the same each time, on a healthy group and on none."""
    group.master()
    options = _options(group)
    with BlockingClient(",".join(group.peers.values()), "g") as client:
        client.append_batch([b"hello", b"world"])
    raw = place.keep_export(group).read_bytes()
    (place.folder / "cut.export").write_bytes(raw[:-40])
    (place.folder / "flipped.export").write_bytes(raw.replace(b"world", b"World"))
    place.show("Numbers and texts that make no sense", NUMBERS, options)
    place.show("Files that cannot be used", FILES, options)
    _show_own_files(place, options)
    place.show("A group on this machine that cannot run", LOCAL_GROUPS, "")
    place.show("Shells without completion", SHELLS, "")
    place.pages = _pages(group)
    place.show("The output goes to a full disk", WRITES, options, to="full")
    place.show("The reader of the output has gone", WRITES, options, to="closed")
    place.pages = ""
    wrong = options.replace("--group g", "--group other")
    place.show("The group has another name", EVERY_COMMAND, wrong)
    place.show("No group is given", ["append --body x", "get 0", "status", "wait"], "")
    page = f"--servers 127.0.0.1:{group.http_ports['n0']} --group g"
    place.show("The port is that of the status page", EVERY_COMMAND, page)
    nothing = "--servers 127.0.0.1:1 --group g"
    place.show("Nothing runs at the address", EVERY_COMMAND, nothing)


def _show_own_files(place: Place, options: str) -> None:
    """Print the tries with files of the user that cannot be used."""
    place.make_records()
    place.show("Records of producers that cannot be used", RECORDS, options)
    for title, state in (("is locked", "locked/state"), ("is a file", "lines.txt")):
        variables = {"XDG_STATE_HOME": str(place.folder / state)}
        commands = ["append --producer p --body x", "import one.export"]
        place.show(f"The folder of the records {title}", commands, options, environment=variables)
    contents = {
        "is no TOML": "servers = [",
        "has a wrong key": '[profiles.p]\nserver = "h:1"\n',
        "names no profile of its own": 'default = "q"\n[profiles.p]\nservers = "h:1"\n',
        "may not be read": "",
        "is a folder": None,
    }
    for number, (title, content) in enumerate(contents.items()):
        file = place.folder / f"config{number}" / "dledger" / "config.toml"
        (file if content is None else file.parent).mkdir(parents=True)
        if content is not None:
            file.write_text(content)
        if content == "":
            file.chmod(0)
        variables = {"XDG_CONFIG_HOME": str(file.parent.parent)}
        place.show(f"The file of profiles {title}", PROFILES, "", environment=variables)
    token_options = [f"--admin-token-file {name}" for name in TOKENS]
    commands = [f"{name} {one}" for name in ("transfer n1", "audit-token") for one in token_options]
    place.show("Tokens that cannot be used", [*commands, "audit-token"], options)


def show_what_is_full(place: Place) -> None:
    """Print the tries on a group whose volume is full, which needs root to be mounted."""
    folder = place.folder / "volume"
    with (
        volume_of_8_mib(folder),
        NodeGroup(folder, 1, segment_size_bytes=256 << 10) as group,
    ):
        servers = ",".join(group.peers.values())
        group.master()
        with contextlib.suppress(OSError), (folder / "filler").open("wb") as filler:
            while True:
                filler.write(bytes(4096))
        with contextlib.suppress(RefusedError), BlockingClient(servers, "g") as client:
            while True:
                client.append(b"full " * 20_000, deadline_s=3.0)
        (place.folder / "one.export").unlink(missing_ok=True)
        place.keep_export(group)
        place.pages = _pages(group)
        place.show("The volume of a single member is full", FULL, _options(group))
        place.pages = ""


def show_what_varies(place: Place, group: NodeGroup) -> None:
    """Print the tries on a group that is unwell, whose messages name what was tried last."""
    leader = group.master()
    others = [member for member in group.peers if member != leader]
    group.freeze(leader)
    alone = f"{_options(group, [leader])} --no-follow"
    place.show("The leader is frozen, and no other is asked", EVERY_COMMAND, alone)
    place.frozen = leader
    patient = [f"{command} --deadline 30" for command in PATIENT]
    place.pages = _pages(group)
    place.show("The leader is frozen", [*patient, "status"], _options(group))
    place.pages = ""
    group.thaw(leader)
    group.master()
    for member in others:
        group.kill(member)
    place.pages = _pages(group)
    place.show("No majority: two of three members are down", EVERY_COMMAND, _options(group))


if __name__ == "__main__":
    main()
