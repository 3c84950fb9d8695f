"""Audits of a group: sound logs, and a log with a flipped bit."""

import json

import pytest

from dledger_e2e.audits import audit
from dledger_e2e.group import Group
from dledger_e2e.load import Load

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.sampled(1, among="audits on the cluster"),
]


def test_an_audit_reports_sound_logs_and_locates_a_flipped_bit(group: Group) -> None:
    with Load(group, per_second=5_000, body_bytes=2_000) as load:
        load.wait_for_more(10_000, timeout_s=120)  # more than one segment of 16 MiB

    sound = audit(group, "sound")

    assert sound["phase"] == "Finished", json.dumps(sound)
    assert sound["verdict"] == "Sound"
    assert sound["entries"] > 10_000
    assert sound["findings"] == 0
    log = group.kubectl("logs", "job/sound-audit")
    assert "Sound: " in log
    assert "Spark starts without" not in log, "the class data of the image fit"
    row = group.kubectl("get", "dla", "sound", "--no-headers").split()
    assert row[0] == "sound"
    assert "Sound" in row

    pod = next(name for name in group.pods() if name != group.leader_pod())
    flip_a_bit(group, pod)
    damaged = audit(group, "damaged")

    assert damaged["verdict"] == "Damaged"
    group.kubectl("wait", "--for=condition=Complete", "job/damaged-audit", "--timeout=60s")
    first = damaged["firstFindings"][0]
    assert first["member"] == f"n{pod.rpartition('-')[2]}"
    assert first["segment"] == "0" * 20
    assert first["firstIndex"] == first["lastIndex"] == 1000
    group.wait_for_condition("Ready", "True")


def flip_a_bit(group: Group, pod: str) -> None:
    """Flip a bit in the body of entry 1000, in a member's first segment, which is sealed."""
    folder = f"/data/store/dledger-n{pod.rpartition('-')[2]}"
    program = "; ".join(
        [
            "import struct",
            f"units = open('{folder}/index/' + '0' * 20, 'rb')",
            "units.seek(32 * 1000)",
            "at = struct.unpack('>iqiqq', units.read(32))[1] + 60",
            f"data = open('{folder}/data/' + '0' * 20, 'r+b')",
            "data.seek(at)",
            "byte = data.read(1)[0]",
            "data.seek(at)",
            "data.write(bytes([byte ^ 1]))",
            "data.close()",
        ]
    )
    group.kubectl("exec", pod, "--", "python3", "-c", program)
