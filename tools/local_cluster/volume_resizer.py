"""Grows the disks behind volume claims that request more: the cluster's storage resizer.

This program replaces a storage driver: it grows the device, raises the capacity of the
PersistentVolume, and marks the claim for the kubelet, which grows the mounted file system. The
marks are those of Kubernetes' external-resizer, which only works with a CSI driver.

It is run by path, not as part of the package. The argument is a JSON file with the `host` and
`port` of the API server, and the files `authority`, `certificate` and `key`.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import ssl
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

FILE_ANNOTATION = "local-cluster/file"
"""The annotation of a PersistentVolume with the file of its disk."""
WATCH_SECONDS = 60
TIMEOUT_SECONDS = 90.0
RETRY_SECONDS = 1.0
CLAIMS = "/api/v1/persistentvolumeclaims"
RESIZE_CONDITIONS = ("Resizing", "FileSystemResizePending", "ControllerResizeError")
_UNITS = {"": 0, "Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40}

Object = dict[str, Any]


def size_bytes(quantity: str) -> int:
    """Return the bytes of a Kubernetes quantity; raises ValueError for decimal units."""
    found = re.fullmatch(r"(\d+)(|Ki|Mi|Gi|Ti)", quantity)
    if not found:
        raise ValueError(f"cannot read the size {quantity!r}")
    return int(found[1]) << _UNITS[found[2]]


def wanted_size(claim: Object) -> str | None:
    """Return the size that a claim's device must get now; None if it has it.

    The device does not change while the kubelet grows the file system.
    """
    status = claim.get("status", {})
    if status.get("phase") != "Bound" or claim["metadata"].get("deletionTimestamp"):
        return None
    if status.get("allocatedResourceStatuses", {}).get("storage", "").startswith("NodeResize"):
        return None
    wanted: str = claim["spec"]["resources"]["requests"]["storage"]
    return wanted if size_bytes(wanted) > size_bytes(status["capacity"]["storage"]) else None


def marked(claim: Object, size: str, state: str, condition: str, now: str) -> Object:
    """Return a patch with the progress of a claim's growth, which fails if the claim changed."""
    others = [
        each
        for each in claim["status"].get("conditions", [])
        if each["type"] not in RESIZE_CONDITIONS
    ]
    says = {"type": condition, "status": "True", "lastTransitionTime": now}
    return {
        "metadata": {"resourceVersion": claim["metadata"]["resourceVersion"]},
        "status": {
            "allocatedResources": {"storage": size},
            "allocatedResourceStatuses": {"storage": state},
            "conditions": [*others, says],
        },
    }


def grow_device(file: Path, size: int) -> None:
    """Grow a disk's file and the device over it; neither ever shrinks."""
    if file.stat().st_size < size:
        os.truncate(file, size)
    listed = ("losetup", "--noheadings", "--output", "NAME", "--associated", str(file))
    found = subprocess.run(listed, check=True, capture_output=True, text=True)
    for device in found.stdout.split():
        subprocess.run(("losetup", "--set-capacity", device), check=True)


class Api:
    """Requests to the API server, as the user of a certificate."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._address = (settings["host"], settings["port"])
        self._context = ssl.create_default_context(cafile=settings["authority"])
        self._context.load_cert_chain(settings["certificate"], settings["key"])

    def connection(self) -> http.client.HTTPSConnection:
        host, port = self._address
        return http.client.HTTPSConnection(
            host, port, context=self._context, timeout=TIMEOUT_SECONDS
        )

    def request(self, method: str, path: str, body: Object | None = None) -> Object:
        """Send a request and return the object in the response. Raises OSError if it is refused."""
        connection = self.connection()
        try:
            connection.request(
                method,
                path,
                body=None if body is None else json.dumps(body),
                headers={"Content-Type": "application/merge-patch+json"},
            )
            answer = connection.getresponse()
            found: Object = json.loads(answer.read())
        finally:
            connection.close()
        if answer.status >= http.client.BAD_REQUEST:
            raise OSError(f"{method} {path}: {answer.status} {found.get('message')}")
        return found


def handle(api: Api, claim: Object) -> None:
    """Grow the device of a claim that requests more, if the cluster provides its volume."""
    size = wanted_size(claim)
    if size is None:
        return
    volume_path = f"/api/v1/persistentvolumes/{claim['spec']['volumeName']}"
    file = api.request("GET", volume_path)["metadata"].get("annotations", {}).get(FILE_ANNOTATION)
    if file is None:
        return
    meta = claim["metadata"]
    path = f"/api/v1/namespaces/{meta['namespace']}/persistentvolumeclaims/{meta['name']}/status"
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    began = marked(claim, size, "ControllerResizeInProgress", "Resizing", now)
    claim = api.request("PATCH", path, began)
    grow_device(Path(file), size_bytes(size))
    api.request("PATCH", volume_path, {"spec": {"capacity": {"storage": size}}})
    done = marked(claim, size, "NodeResizePending", "FileSystemResizePending", now)
    api.request("PATCH", path, done)
    print(f"{now} {meta['namespace']}/{meta['name']}: its device has {size}", flush=True)


def watch(api: Api) -> None:
    """Handle every claim, and every change of one, until the server ends the watch."""
    connection = api.connection()
    try:
        connection.request("GET", f"{CLAIMS}?watch=true&timeoutSeconds={WATCH_SECONDS}")
        answer = connection.getresponse()
        if answer.status != http.client.OK:
            raise OSError(f"the watch of claims is refused: {answer.status}")
        for line in answer:
            event = json.loads(line)
            if event["type"] in ("ADDED", "MODIFIED"):
                try:
                    handle(api, event["object"])
                except (OSError, ValueError, subprocess.CalledProcessError) as error:
                    # A changed claim has another event; other claims are retried at the next watch.
                    print(error, flush=True)
    finally:
        connection.close()


def main() -> None:
    api = Api(json.loads(Path(sys.argv[1]).read_text()))
    while True:
        try:
            watch(api)
        except (OSError, ValueError, http.client.HTTPException) as error:
            print(error, flush=True)
            time.sleep(RETRY_SECONDS)


if __name__ == "__main__":
    main()
