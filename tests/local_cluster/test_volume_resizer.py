"""What the local cluster's storage resizer does about a claim; cluster tests grow real disks."""

from typing import Any

import pytest

from tools.local_cluster import volume_resizer


def claim(requested: str = "64Mi", capacity: str = "64Mi", **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "one", "name": "data-log-0", "resourceVersion": "7"},
        "spec": {"resources": {"requests": {"storage": requested}}, "volumeName": "node1-small"},
        "status": {"phase": "Bound", "capacity": {"storage": capacity}, **status},
    }


@pytest.mark.parametrize(
    ("seen", "size"),
    [
        (claim(), None),
        (claim("1Gi"), "1Gi"),
        (claim("1Gi", "1024Mi"), None),
        (claim("1Gi", phase="Pending"), None),
        (claim("1Gi", allocatedResourceStatuses={"storage": "ControllerResizeInProgress"}), "1Gi"),
        (claim("1Gi", allocatedResourceStatuses={"storage": "NodeResizePending"}), None),
        (claim("1Gi", allocatedResourceStatuses={"storage": "NodeResizeInProgress"}), None),
    ],
)
def test_a_bound_claim_gets_its_size_unless_the_kubelet_is_at_work(
    seen: dict[str, Any], size: str | None
) -> None:
    assert volume_resizer.wanted_size(seen) == size


def test_a_mark_replaces_earlier_marks_and_keeps_other_conditions() -> None:
    others = [{"type": "Resizing", "status": "True"}, {"type": "Other", "status": "True"}]

    patch = volume_resizer.marked(
        claim("1Gi", conditions=others), "1Gi", "NodeResizePending", "FileSystemResizePending", "t"
    )

    assert patch["metadata"] == {"resourceVersion": "7"}
    assert patch["status"]["allocatedResources"] == {"storage": "1Gi"}
    assert patch["status"]["allocatedResourceStatuses"] == {"storage": "NodeResizePending"}
    assert patch["status"]["conditions"] == [
        {"type": "Other", "status": "True"},
        {"type": "FileSystemResizePending", "status": "True", "lastTransitionTime": "t"},
    ]


@pytest.mark.parametrize("text", ["", "1G", "0.5Gi", "-1Gi"])
def test_a_size_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="size"):
        volume_resizer.size_bytes(text)
