"""One operator with many groups: how soon it has reconciled all after a restart, how soon a leader
change is labeled, its memory, its status writes, and what it costs while nothing happens.

    make bench-operator                 or, for other numbers:
    PYTHONPATH=tests/lib python -m dledger_kube.many_groups --groups 100 --changes 100

The API server and etcd are real, and the operator is a process with the chart's permissions. Each
group has three members that answer over HTTP, pods that no kubelet runs, and a master Service whose
endpoints the benchmark writes, as the controller of EndpointSlices does. Needs the cluster's
programs (`python -m tools.local_cluster build`).
"""

import argparse
import asyncio
import contextlib
import json
import os
import re
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random, SystemRandom
from typing import Any, Final

from api_server import programs, server
from api_server.client import ApiServer
from api_server.objects import wait_until_served
from dledger_kube.cluster import API, Namespace, parsed
from dledger_kube.fake_members import FakeMember
from dledger_kube.objects import node_status
from dledger_kube.operator_account import operator_kubeconfig
from dledger_kube.operator_process import OperatorProcess
from dledger_operator import names

ROOT: Final = Path(__file__).resolve().parents[3]
LEADER: Final = re.compile(r"^dledger_group_leader\{.*\} 1\.0$", re.MULTILINE)
MEMBERS: Final = 3
WAIT_S: Final = 300.0
POLL_S: Final = 0.005
WRITES_S: Final = 120.0
"""How long the status writes of a group that appends are counted."""
IDLE_S: Final = 120.0
"""How long the processor time of an operator with idle groups is measured."""


@dataclass(slots=True)
class BenchGroup:
    """A group and its members."""

    name: str
    members: list[FakeMember]
    term: int = 1
    leader: int = 0

    async def lead(self, leader: int) -> None:
        """Let a member lead the next term."""
        self.term, self.leader = self.term + 1, leader
        for member in self.members:
            await member.say(self.term, f"n{leader}")


async def until(what: str, holds: Callable[[], bool], poll_s: float = POLL_S) -> float:
    """Wait until a blocking condition holds; return how long that took in seconds."""
    begun_s = time.monotonic()
    while not await asyncio.to_thread(holds):
        if time.monotonic() - begun_s > WAIT_S:
            raise TimeoutError(f"not within {WAIT_S:g} s: {what}")
        await asyncio.sleep(poll_s)
    return time.monotonic() - begun_s


def create(namespace: Namespace, name: str) -> dict[str, Any]:
    """Create a group."""
    sent = {
        "apiVersion": "dledger.io/v1alpha1",
        "kind": "DLedgerGroup",
        "metadata": {"name": name},
        "spec": {"storage": {"size": "30Gi"}},
    }
    path = namespace.path("dledgergroups", group=API)
    made: dict[str, Any] = namespace.server.request("POST", path, sent)
    return made


async def start_members(count: int) -> list[BenchGroup]:
    """Start the members of all groups, each at an address of its own."""
    groups, subnet = [], f"127.{SystemRandom().randint(1, 254)}"
    for number in range(count):
        name = f"group-{number}"
        members = [
            FakeMember(f"n{k}", f"{subnet}.{number}.{k + 1}", names.HTTP_PORT)
            for k in range(MEMBERS)
        ]
        for member in members:
            member.status = replace(node_status(member.member_id), group=name)
            await member.answer()
        groups.append(BenchGroup(name, members))
    return groups


def reported(operator: OperatorProcess) -> int:
    """Return for how many groups the operator exports a leader, as after its first report."""
    with contextlib.suppress(OSError):
        return len(LEADER.findall(operator.metrics()))
    return 0


def memory_mib(operator: OperatorProcess) -> float:
    """Return the most memory that the operator's process has used, in MiB."""
    assert operator._process is not None
    status = Path(f"/proc/{operator._process.pid}/status").read_text()
    found = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
    assert found
    return int(found[1]) / 1024


def processor_s(operator: OperatorProcess) -> float:
    """Return the processor time that the operator's process has used, in seconds."""
    assert operator._process is not None
    stat = Path(f"/proc/{operator._process.pid}/stat").read_text()
    user, system = stat.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


async def idle_millicores(operator: OperatorProcess, seconds: float) -> float:
    """Return the operator's processor use while its groups are idle, in millicores."""
    before_s, begun_s = processor_s(operator), time.monotonic()
    await asyncio.sleep(seconds)
    return 1000 * (processor_s(operator) - before_s) / (time.monotonic() - begun_s)


def role_of(namespace: Namespace, pod: str) -> str:
    """Return the role label of a pod; empty without one."""
    labels = namespace.get("pods", pod)["metadata"]["labels"]
    return str(labels.get(names.ROLE_LABEL, ""))


def point_service(namespace: Namespace, group: BenchGroup) -> None:
    """Write the EndpointSlice of the group's master Service, as its controller does."""
    namespace.point_service(
        group.name, names.master_service(group.name), names.pod(group.name, group.leader)
    )


async def changes(namespace: Namespace, groups: list[BenchGroup], count: int) -> list[float]:
    """Change leaders one after the other; return how long each took until it was labeled."""
    random, took_s = Random(1), []
    for _ in range(count):
        group = random.choice(groups)
        await group.lead((group.leader + 1) % MEMBERS)
        pod = names.pod(group.name, group.leader)
        took_s.append(await until(pod, lambda p=pod: role_of(namespace, p) == "master"))
        await asyncio.to_thread(point_service, namespace, group)
    return sorted(took_s)


async def writes_per_minute(namespace: Namespace, group: BenchGroup, seconds: float) -> float:
    """Return how often the object of a group changes in a minute while it appends."""
    leader = group.members[group.leader]
    leader.grows_by = 1000
    versions, end_s = set(), time.monotonic() + seconds
    while time.monotonic() < end_s:
        found = await asyncio.to_thread(namespace.get, "dledgergroups", group.name, API)
        versions.add(found["metadata"]["resourceVersion"])
        await asyncio.sleep(0.2)
    leader.grows_by = 0
    return (len(versions) - 1) / (seconds / 60)


async def measure(
    api: ApiServer,
    folder: Path,
    count: int,
    change_count: int,
    writes_s: float = WRITES_S,
    idle_s: float = IDLE_S,
) -> dict[str, Any]:
    """Run everything; return the figures."""
    namespace = Namespace.make(api)
    kubeconfig = operator_kubeconfig(api, namespace, folder)
    groups = await start_members(count)
    bodies = [create(namespace, group.name) for group in groups]
    found: dict[str, Any] = {"groups": count, "load": os.getloadavg()[0]}
    with OperatorProcess(kubeconfig, namespace.name, folder) as operator:

        def made() -> int:
            return len(namespace.get("statefulsets", group="/apis/apps/v1")["items"])

        found["created_s"] = await until("all StatefulSets", lambda: made() == count, 0.2)
        for body, group in zip(bodies, groups, strict=True):
            for ordinal, member in enumerate(group.members):
                await asyncio.to_thread(namespace.make_pod, parsed(body), ordinal, member.ip)
            await group.lead(0)
        found["led_s"] = await until("all leaders", lambda: reported(operator) == count, 0.2)
        for group in groups:
            await asyncio.to_thread(point_service, namespace, group)
        operator.kill()
        operator.start()
        found["restart_s"] = await until("all again", lambda: reported(operator) == count, 0.05)
        took_s = await changes(namespace, groups, change_count)
        found["changes"] = change_count
        for share in (0.5, 0.99):
            found[f"change_p{share * 100:.0f}_ms"] = took_s[int(len(took_s) * share)] * 1000
        found["change_max_ms"] = took_s[-1] * 1000
        found["status_writes_per_minute"] = await writes_per_minute(namespace, groups[0], writes_s)
        found["idle_millicores"] = await idle_millicores(operator, idle_s)
        found["memory_mib"] = memory_mib(operator)
        found["reconciled_after_restart"] = reported(operator)
        doubles = re.findall(r"^dledger_double_master_observed_total\{.*\} (\S+)$",
                             operator.metrics(), re.MULTILINE)  # fmt: skip
        found["double_masters"] = sum(map(float, doubles))
    for group in groups:
        for member in group.members:
            await member.fall_silent()
    return found


async def main() -> None:
    """Measure, and print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--groups", type=int, default=100)
    parser.add_argument("--changes", type=int, default=100)
    what = "how long status writes, and then an idle operator, are measured; default: 120 s each"
    parser.add_argument("--seconds", type=float, default=IDLE_S, help=what)
    arguments = parser.parse_args()
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(8))
    with (
        server.running(programs.find()) as api,
        tempfile.TemporaryDirectory(prefix="bench-operator-") as folder,
    ):
        await asyncio.to_thread(api.kubectl, "apply", "--server-side", f"--filename={ROOT}/crds")
        await asyncio.to_thread(wait_until_served, api)
        seconds = arguments.seconds
        found = await measure(
            api, Path(folder), arguments.groups, arguments.changes, writes_s=seconds, idle_s=seconds
        )
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    asyncio.run(main())
