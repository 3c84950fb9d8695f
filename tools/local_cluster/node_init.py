"""Process 1 of a node: lays out its file system, starts its daemons, reaps its orphans.

Run by path, not as part of the package, inside fresh mount, process, network, IPC and UTS
namespaces. Because the node is its namespaces, killing this process is a power cut: the kernel
ends every process in them at once, and with the last one go the mounts and the network.

Argument: a JSON file with `hostname`, `mounts` and `disks` (pairs of source and mount point),
`settings_folder` and `daemons`. First it waits for its network; then come the daemons in their
order, each with `name`, `command`, `log`, and `then`: a list of commands that must succeed, each
tried until it does, before the next daemon starts. A daemon that ends is started again.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

NETWORK_SECONDS = 30.0
STEP_SECONDS = 60.0
RETRY_SECONDS = 0.1
RESTART_SECONDS = 1.0

KUBELET_SETTINGS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def lay_out_file_system(mounts: list[list[str]], disks: list[list[str]]) -> None:
    """Give the daemons the usual paths, each over a folder that is the node's own."""
    # Fresh from `unshare` all is private; below, containers must see what the kubelet mounts.
    mount("--make-rshared", "/")
    for source, mount_point in mounts:
        mount("--bind", source, mount_point)
    for file, mount_point in disks:
        mount("-o", "loop", file, mount_point)
    # A folder of network namespaces that goes when the node goes.
    mount("-t", "tmpfs", "tmpfs", "/run/netns")


def protect_kernel_settings(folder: Path) -> None:
    """Keep the machine's settings out of the node's reach.

    Only the network's are per namespace. A kubelet insists on writing some others, so it gets
    files of the node's own in their place.
    """
    mount("--bind", "/proc/sys", "/proc/sys")
    mount("--bind", "/proc/sys/net", "/proc/sys/net")
    for name in KUBELET_SETTINGS:
        own = folder / name.replace("/", ".")
        own.write_text(Path("/proc/sys", name).read_text())
        mount("--bind", str(own), f"/proc/sys/{name}")
    mount("-o", "remount,bind,ro", "/proc/sys")


def wait_for_network() -> None:
    """Wait until the machine has plugged the node in: the kubelet wants its address to be there."""
    end = time.monotonic() + NETWORK_SECONDS
    # The first line is the header of the table.
    while len(Path("/proc/net/route").read_text().splitlines()) < 2:
        if time.monotonic() > end:
            sys.exit("no network within its time")
        time.sleep(RETRY_SECONDS)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def start(daemon: dict[str, Any]) -> int:
    command = daemon["command"]
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    pid = os.posix_spawnp(
        command[0],
        command,
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, daemon["log"], append, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    print(f"started {daemon['name']} as {pid}", flush=True)
    return pid


def until_success(command: list[str]) -> None:
    end = time.monotonic() + STEP_SECONDS
    while True:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
        if time.monotonic() > end:
            sys.exit(f"{command} still fails: {done.stderr}")
        time.sleep(RETRY_SECONDS)


def reap_and_restart(running: dict[int, dict[str, Any]]) -> None:
    while True:
        pid, status = os.wait()
        daemon = running.pop(pid, None)
        if daemon is None:
            continue
        code = os.waitstatus_to_exitcode(status)
        print(f"{daemon['name']} ended with {code}; starts again", flush=True)
        time.sleep(RESTART_SECONDS)
        running[start(daemon)] = daemon


def main() -> None:
    specification = json.loads(Path(sys.argv[1]).read_text())
    # Process 1 ignores what it does not handle, but a child would inherit an ignored signal.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    socket.sethostname(specification["hostname"])
    lay_out_file_system(specification["mounts"], specification["disks"])
    protect_kernel_settings(Path(specification["settings_folder"]))
    wait_for_network()
    running: dict[int, dict[str, Any]] = {}
    for daemon in specification["daemons"]:
        running[start(daemon)] = daemon
        for command in daemon["then"]:
            until_success(command)
    reap_and_restart(running)


if __name__ == "__main__":
    main()
