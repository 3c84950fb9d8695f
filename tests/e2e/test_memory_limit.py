"""A member with a small memory limit, and clients that do not read their answers."""

import select
import subprocess
from collections.abc import Callable, Iterator

import pytest

from dledger_e2e.group import Group
from dledger_e2e.load import Load, assert_nothing_was_lost
from dledger_e2e.waiting import wait_for
from tools.deployment import CLIENT_POD

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.sampled(1, among="closed doors on the cluster"),
]
MIB = 1 << 20
LIMIT_MIB = 128
"""A quarter of the default. What a member may hold that knows no limit does not fit into it."""
READERS = 1024
BODY_BYTES = 64 * 1024
GROWTH_MIB_MIN = 8
"""The member holds at least so much more once it answers the readers."""
ASKED_S_MAX = 120
SETTLED_LOOKS = 8
"""The member has answered all it will once so many looks in a row show no more memory."""
ASK = f"""
import resource, socket, sys
from dledger_formats.protocol import frames
from dledger_formats.protocol.codes import RequestCode
from dledger_formats.protocol.requests import GetEntriesRequest

_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
address, group, member = sys.argv[1:]
wanted = GetEntriesRequest(group=group, remote_id=member, begin_index=1, max_size={MIB}).to_json()
asked = frames.encode_requests(RequestCode.GET, [(k, wanted) for k in range(40)])
kept = []
for _ in range({READERS}):
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.connect((address, 40911))
    made.sendall(asked)
    kept.append(made)
print("asked", flush=True)
sys.stdin.read()
"""
"""A program of the client pod: it asks for entries on many connections, and reads no answer."""
MEMORY = """
line = next(each for each in open("/proc/1/status") if each.startswith("RssAnon:"))
print(int(line.split()[1]) // 1024)
"""


@pytest.fixture
def limited(make_group: Callable[..., Group]) -> Group:
    """A group whose members admit all readers from one address."""
    group = make_group(
        resources={
            "requests": {"cpu": "50m", "memory": "96Mi"},
            "limits": {"memory": f"{LIMIT_MIB}Mi"},
        },
        limits={"connections": 2 * READERS, "connectionsPerAddress": 2 * READERS},
    )
    group.start_client()
    group.wait_until_ready()
    group.wait_for_condition("QuorumHealthy", "True", "AllMembersReady")
    return group


@pytest.fixture
def lazy_readers(limited: Group) -> Iterator[Callable[[str], None]]:
    """A function that lets the client pod ask a member's pod on many connections."""
    started: list[subprocess.Popen[bytes]] = []

    def ask(pod: str) -> None:
        address = limited.pods()[pod]["status"]["podIP"]
        member = f"n{pod.rpartition('-')[2]}"
        process = limited.deployment.kubernetes.start(
            "exec", "--stdin", f"--namespace={limited.namespace}", CLIENT_POD, "--",
            "python3", "-c", ASK, address, limited.name, member,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        started.append(process)
        assert process.stdout is not None
        answered, _, _ = select.select([process.stdout], [], [], ASKED_S_MAX)
        assert answered, f"the readers have not asked after {ASKED_S_MAX} s"
        assert process.stdout.readline() == b"asked\n"

    yield ask
    for process in started:
        process.kill()
        process.communicate()


def memory_mib(group: Group, pod: str) -> int:
    """Return the memory of a member's process in MiB, without its mapped files."""
    return int(group.kubectl("exec", pod, "--", "python3", "-c", MEMORY))


def containers(group: Group) -> dict[str, tuple[str, int]]:
    """Return the uid and the restarts of every member's pod."""
    return {
        name: (pod["metadata"]["uid"], pod["status"]["containerStatuses"][0]["restartCount"])
        for name, pod in group.pods().items()
    }


def test_slow_readers_on_1024_connections_get_no_member_killed(
    limited: Group,
    lazy_readers: Callable[[str], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Load(limited, per_second=20, body_bytes=BODY_BYTES) as load:
        load.wait_for_more(100)
        leader, before = limited.leader_pod(), containers(limited)
        seen = [memory_mib(limited, leader)]
        lazy_readers(leader)

        def settled() -> bool:
            seen.append(memory_mib(limited, leader))
            highest_before = max(seen[:-SETTLED_LOOKS], default=0)
            has_grown = highest_before > seen[0] + GROWTH_MIB_MIN
            return has_grown and max(seen[-SETTLED_LOOKS:]) <= highest_before

        wait_for(settled, "the member's memory has grown and no longer grows", timeout_s=120)
        load.wait_for_more(50)

    with capsys.disabled():
        print(f"\n{seen[0]} MiB before, at most {max(seen)} of {LIMIT_MIB} MiB")
    assert max(seen) < LIMIT_MIB
    assert containers(limited) == before
    assert not load.refused, load.failures
    assert_nothing_was_lost(limited, load)
