"""Runs `dledger` in situations that go wrong, and prints what a person sees: `tries.txt`.

    .venv/bin/python -m tests.client.tries > /tmp/tries.txt && mv /tmp/tries.txt tests/client/

Run it and read the difference after a change: every message must say what happened, to which
object, and what to do. Addresses, times, names of members and folders are masked.
`test_tries.py` repeats the tries, and compares.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TextIO

from dledger_client.sync import BlockingClient
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
WITHOUT_DEADLINE = ("status", "completion")
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
WRITES = [
    "get 1", "get 1 -o json", "export -", "append -o json --body x", "group", "status",
    "append --body x", "tail --last 1 --count 1", "member list", "health", "wait",
]  # fmt: skip
PATIENT = ["append --body x", "get 1", "group", "member list", "register get 1", "health", "wait"]
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
        self.pages = ""
        """Where the members' pages are, for the commands that ask for them."""
        (folder / "lines.txt").write_text("one\ntwo\n")
        (folder / "secret.txt").write_text("secret\n")
        (folder / "secret.txt").chmod(0)
        (folder / "locked").mkdir(mode=0o555)

    def show(self, title: str, commands: Sequence[str], options: str, *, to: str = "") -> None:
        """Run commands with these options, and print what each one does."""
        print(f"\n## {title}", file=self.out)
        with ThreadPoolExecutor(PARALLEL) as pool:
            for text in pool.map(lambda command: self._try(command, options, to), commands):
                print(text, file=self.out)

    def keep_export(self, group: NodeGroup) -> Path:
        """Export the group into the file that the tries import."""
        file = self.folder / "one.export"
        command = [*COMMAND, "export", *_options(group).split(), str(file)]
        subprocess.run(command, check=True, capture_output=True)
        return file

    def _try(self, command: str, options: str, to: str) -> str:
        name = command.split()[0]
        deadline = "" if name in WITHOUT_DEADLINE else f"--deadline {DEADLINE_S}"
        if "--deadline" in command:
            deadline = ""
        pages = f"--http {self.pages}" if self.pages and name in ASKS_PAGES else ""
        words = [word.strip("'") for word in f"{command} {options} {deadline} {pages}".split()]
        prefix = NO_PRIVILEGE if os.geteuid() == 0 else []
        shell = 'exec "$@"' + {"full": " > /dev/full", "": ""}.get(to, "")
        run = ["bash", "-c", shell, "bash", *prefix, *COMMAND, *words]
        with subprocess.Popen(
            run, cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
            stdout=_closed_pipe() if to == "closed" else subprocess.PIPE, stderr=subprocess.PIPE,
        ) as process:  # fmt: skip
            out, err = process.communicate(timeout=TIMEOUT_S)
        shown = (out or b"")[:2000].decode(errors="replace") if name != "export" else ""
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


def show_what_varies(place: Place, group: NodeGroup) -> None:
    """Print the tries on a group that is unwell, whose messages name what was tried last."""
    leader = group.master()
    others = [member for member in group.peers if member != leader]
    group.freeze(leader)
    alone = f"{_options(group, [leader])} --no-follow"
    place.show("The leader is frozen, and no other is asked", EVERY_COMMAND, alone)
    patient = [f"{command} --deadline 30" for command in PATIENT]
    place.show("The leader is frozen", patient, _options(group))
    group.thaw(leader)
    group.master()
    for member in others:
        group.kill(member)
    place.pages = _pages(group)
    place.show("No majority: two of three members are down", EVERY_COMMAND, _options(group))


if __name__ == "__main__":
    main()
