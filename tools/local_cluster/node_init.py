"""Process 1 of a node: sets up its file system, starts its daemons and reaps its orphans.

It is run by path, not as part of the package, in new mount, process, network, IPC and UTS
namespaces. These namespaces are the node, so killing this process is a power cut: the kernel kills
every process in them at once, and removes their mounts and network with the last one.

The argument is a JSON file with `hostname`, `mounts` and `disks` (pairs of source and mount
point), `settings_folder` and `daemons`. The process waits for its network and then starts the
daemons in order. Each daemon has a `name`, a `command`, a `log` and `then`, a list of commands that
are retried until they succeed before the next daemon starts. A daemon that ends is started again.
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
    """Mount the node's own folders over the daemons' usual paths."""
    # `unshare` made all mounts private, but containers must see what the kubelet mounts.
    mount("--make-rshared", "/")
    for source, mount_point in mounts:
        mount("--bind", source, mount_point)
    for file, mount_point in disks:
        mount("-o", "loop", file, mount_point)
    # The node's network namespaces; they disappear with the node.
    mount("-t", "tmpfs", "tmpfs", "/run/netns")


def protect_kernel_settings(folder: Path) -> None:
    """Keep the node from changing the machine's kernel settings.

    Only network settings are per namespace. A kubelet requires write access to a few others; files
    of the node are mounted in their place.
    """
    mount("--bind", "/proc/sys", "/proc/sys")
    mount("--bind", "/proc/sys/net", "/proc/sys/net")
    for name in KUBELET_SETTINGS:
        own = folder / name.replace("/", ".")
        own.write_text(Path("/proc/sys", name).read_text())
        mount("--bind", str(own), f"/proc/sys/{name}")
    mount("-o", "remount,bind,ro", "/proc/sys")


def wait_for_network() -> None:
    """Wait until the machine has connected the node: the kubelet needs the node's address."""
    end = time.monotonic() + NETWORK_SECONDS
    # The first line is the header of the table.
    while len(Path("/proc/net/route").read_text().splitlines()) < 2:
        if time.monotonic() > end:
            sys.exit(f"no network within {NETWORK_SECONDS:g} s")
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
            sys.exit(f"{command} still fails after {STEP_SECONDS:g} s: {done.stderr}")
        time.sleep(RETRY_SECONDS)


def reap_and_restart(running: dict[int, dict[str, Any]]) -> None:
    while True:
        pid, status = os.wait()
        daemon = running.pop(pid, None)
        if daemon is None:
            continue
        code = os.waitstatus_to_exitcode(status)
        print(f"{daemon['name']} exited with code {code}; restarting it", flush=True)
        time.sleep(RESTART_SECONDS)
        running[start(daemon)] = daemon


def main() -> None:
    specification = json.loads(Path(sys.argv[1]).read_text())
    # A background job ignores SIGINT; the children must not inherit that.
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
