"""Requests about the Secret with the administration tokens of a namespace's groups.

The Secret has two keys for each group: the file that the group's members mount, and the one with
the audit tokens, which its audits mount. An annotation records what the operator knows about these
tokens. All groups share one Secret, because permissions on Secrets can be limited by name, but not
by label: the operator may read this one and no other.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from lightkube import AsyncClient
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Secret
from lightkube.types import PatchType

from dledger_formats.admin_tokens import AdminTokens, TokensError
from dledger_operator import names
from dledger_operator.api_objects import TokenEntry, TokenPhase, TokenSecretView
from dledger_operator.clients import connection
from dledger_operator.clients.errors import NotFoundError

_LABELS: Final = {names.MANAGED_BY_LABEL: names.FIELD_MANAGER}


class TokenClient:
    """Requests about the tokens. Each raises KubeError if it fails; no error names a token."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def read(self, namespace: str) -> TokenSecretView | None:
        """Get the tokens of a namespace; None if there is no Secret yet."""
        try:
            with connection.translated(f"get Secret {namespace}/{names.TOKENS_NAME}"):
                found = await self._client.get(Secret, names.TOKENS_NAME, namespace=namespace)
        except NotFoundError:
            return None
        return secret_view(found)

    async def token(self, namespace: str, group: str) -> str:
        """Return the token to send to a group's leader; empty if the group has none."""
        found = await self.read(namespace)
        entry = found.entries.get(group) if found and found.is_ours else None
        return entry.tokens.current if entry else ""

    async def write(
        self,
        namespace: str,
        found: TokenSecretView | None,
        entries: Mapping[str, TokenEntry | None],
        owners: Mapping[str, str],
    ) -> None:
        """Write the entries of some groups; None removes one. `owners` has the uids of all groups
        that have an entry now.

        Raises ConflictError if the Secret has changed since `found` was read, or already exists.
        """
        records = {
            names.token_annotation(name): entry and _record(entry)
            for name, entry in entries.items()
        }
        references = [_owner(name, uid) for name, uid in sorted(owners.items())]
        data: dict[str, str | None] = {}
        for name, entry in entries.items():
            key = names.audit_token_key(name)
            data[name] = None if entry is None else _encoded(entry.tokens)
            data[key] = None if entry is None else _encoded(entry.tokens.for_audits())
        where = f"Secret {namespace}/{names.TOKENS_NAME}"
        patch: dict[str, Any] = {
            "metadata": {
                "labels": _LABELS,
                "annotations": records,
                "ownerReferences": references,
            },
            "data": data,
        }
        if found is None:
            patch["metadata"] |= {"name": names.TOKENS_NAME, "namespace": namespace}
            secret = Secret.from_dict(patch)
            assert isinstance(secret, Secret)
            with connection.translated(f"create {where}"):
                await self._client.create(secret)
            return
        patch["metadata"]["resourceVersion"] = found.resource_version
        with connection.translated(f"change {where}"):
            await self._client.patch(
                Secret, names.TOKENS_NAME, patch, namespace=namespace, patch_type=PatchType.MERGE
            )


def _owner(name: str, uid: str) -> dict[str, str]:
    return {
        "apiVersion": names.API_GROUP_VERSION,
        "kind": names.GROUP_KIND,
        "name": name,
        "uid": uid,
    }


def _encoded(tokens: AdminTokens) -> str:
    return base64.b64encode(tokens.to_text().encode()).decode()


def _record(entry: TokenEntry) -> str:
    return json.dumps(
        {
            "uid": entry.uid,
            "phase": entry.phase.value,
            "since": names.timestamp(entry.since),
            "rotatedAt": entry.rotated_at,
        },
        separators=(",", ":"),
    )


def secret_view(secret: Secret) -> TokenSecretView:
    """Translate the Secret. A record that is not in its form counts as lost."""
    metadata = secret.metadata or ObjectMeta()
    records = metadata.annotations or {}
    entries, with_audit_tokens = {}, set()
    data = secret.data or {}
    for name in data:
        if names.is_audit_token_key(name):
            continue
        entry = _entry(data[name], records.get(names.token_annotation(name), ""))
        if entry is not None:
            entries[name] = entry
            if data.get(names.audit_token_key(name)) == _encoded(entry.tokens.for_audits()):
                with_audit_tokens.add(name)
    return TokenSecretView(
        resource_version=metadata.resourceVersion or "",
        is_ours=(metadata.labels or {}).get(names.MANAGED_BY_LABEL) == names.FIELD_MANAGER,
        entries=entries,
        with_audit_tokens=frozenset(with_audit_tokens),
    )


def _entry(encoded: str, record: str) -> TokenEntry | None:
    """Return the entry of a group; None if its content is not a valid file with tokens."""
    try:
        tokens = AdminTokens.parse(base64.b64decode(encoded, validate=True))
    except (TokensError, binascii.Error):
        return None
    try:
        found = json.loads(record)
        since = datetime.fromisoformat(found["since"])
        if since.tzinfo is None:
            raise ValueError("a time without a zone")
        return TokenEntry(
            uid=str(found["uid"]),
            phase=TokenPhase(found["phase"]),
            since=since,
            rotated_at=str(found["rotatedAt"]),
            tokens=tokens,
        )
    except (ValueError, TypeError, KeyError):
        return TokenEntry(tokens=tokens)
