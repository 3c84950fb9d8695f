"""The connection to the API server, and the meaning of its errors."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, TypeVar

import httpx2
import msgspec
from lightkube import ApiError, AsyncClient
from lightkube.config.client_adapter import verify_cluster
from lightkube.config.kubeconfig import KubeConfig, SingleConfig
from lightkube.config.models import User
from lightkube.core.exceptions import ConfigError
from lightkube.core.generic_client import ListAsyncIterable
from lightkube.core.resource import NamespacedResource
from lightkube.core.selector import build_selector

from dledger_operator import names
from dledger_operator.clients.errors import (
    ConflictError,
    InvalidError,
    KubeError,
    NotFoundError,
    NotServedError,
    RefusedError,
    UnavailableError,
)

KUBECONFIG: Final = "KUBECONFIG"
REQUEST_S_MAX: Final = 5.0
CONNECT_S_MAX: Final = 2.0
RETRY_AFTER_S_MAX: Final = 60.0
CONNECTIONS_MAX: Final = 100
CONNECTIONS_KEPT_MAX: Final = 4
"""Each request checks all idle connections, so many of them would make every renewal of the Lease
expensive. A relabeling needs only a few of them.
"""
CONNECTION_KEPT_S: Final = 60.0

_ERROR_OF_CODE: Final[dict[int, type[KubeError]]] = {
    400: InvalidError, 403: RefusedError, 404: NotFoundError, 405: RefusedError,
    409: ConflictError, 410: ConflictError, 422: InvalidError,
}  # fmt: skip
"""Other codes are failures of the server. So is a 401: it says nothing about permissions, only that
the server does not recognize the account now.
"""


Resource = TypeVar("Resource", bound=NamespacedResource)


class _Transport(httpx2.AsyncHTTPTransport):
    """A transport whose answers all have a Content-Type, as the library expects. The answer of a
    proxy that does not reach the server may have none.
    """

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await super().handle_async_request(request)
        response.headers.setdefault("Content-Type", "")
        return response


class ApiClient(AsyncClient):
    """The library's client, with a request that it lacks."""

    def list_labeled(
        self,
        res: type[Resource],
        *,
        namespace: str,
        labels: Mapping[str, str],
        not_older_than: int = 0,
    ) -> ListAsyncIterable[Resource]:
        """List objects in their latest state or, with `not_older_than`, from the server's cache
        once the cache has reached that version.
        """
        request = self._client.prepare_request(
            "list",
            res=res,
            namespace=namespace,
            params={
                "labelSelector": build_selector(dict(labels)),
                "resourceVersion": str(not_older_than) if not_older_than else None,
                "resourceVersionMatch": "NotOlderThan" if not_older_than else None,
            },
        )
        return self._client.list(request)


def client() -> ApiClient:
    """Connect as the pod's ServiceAccount or, outside a cluster, with the kubeconfig.

    Idle connections stay open between requests: a TLS handshake would make relabeling several times
    slower.
    """
    config = _configuration()
    try:
        verified = verify_cluster(config.cluster, config.user or User(), config.abs_file)
    except (OSError, ValueError, ConfigError) as error:
        raise UnavailableError(
            f"cannot read the certificates or keys that {_source(config)} names: {error}"
        ) from error
    transport = _Transport(
        verify=verified,
        limits=httpx2.Limits(
            max_connections=CONNECTIONS_MAX,
            max_keepalive_connections=CONNECTIONS_KEPT_MAX,
            keepalive_expiry=CONNECTION_KEPT_S,
        ),
    )
    return ApiClient(
        config=config,
        transport=transport,
        timeout=httpx2.Timeout(REQUEST_S_MAX, connect=CONNECT_S_MAX),
        field_manager=names.FIELD_MANAGER,
    )


def _configuration() -> SingleConfig:
    try:
        config = KubeConfig.from_env().get()
    except ConfigError as error:
        raise UnavailableError(
            f"neither a ServiceAccount nor a kubeconfig was found for the API server: {error}"
        ) from error
    except Exception as error:  # the library checks hardly anything that it reads
        why = " ".join(str(error).split())
        raise UnavailableError(
            f"{os.environ.get(KUBECONFIG) or 'the configuration'} is no kubeconfig: "
            f"{type(error).__name__}: {why}"
        ) from error
    assert config is not None, "get() raises when it finds nothing"
    return config


def _source(config: SingleConfig) -> str:
    return str(config.fname or "the ServiceAccount")


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Turn the library's errors into KubeErrors whose message starts with the request.

    A 404 counts for an object only if it names the object. Whatever lies between the operator and
    the API server may answer 404 as well, and nobody would find out that the object still exists.
    """
    try:
        yield
    except ApiError as error:
        kind = _ERROR_OF_CODE.get(error.status.code or 500, UnavailableError)
        details = error.status.details
        causes = (details.causes if details else None) or []
        if kind is NotFoundError and not (details and details.name):
            kind = NotServedError
        if any(cause.field == "metadata.uid" for cause in causes):
            kind = ConflictError  # another object has this name now
        raise _error(kind, f"{what}: {error.status.message}", error.response) from error
    except httpx2.HTTPStatusError as error:
        # The API server answers in plain text with a 404 for a kind that it does not serve, and
        # with a 429 while it is overloaded.
        kind = _ERROR_OF_CODE.get(error.response.status_code, UnavailableError)
        kind = NotServedError if kind is NotFoundError else kind
        text = error.response.text.strip() or str(error)
        raise _error(kind, f"{what}: {text}", error.response) from error
    except httpx2.HTTPError as error:
        raise UnavailableError(f"{what}: {str(error) or type(error).__name__}") from error
    except (json.JSONDecodeError, msgspec.MsgspecError) as error:
        text = f"{what}: the answer is none of the API server's: {error}"
        raise UnavailableError(text) from error


def _error(kind: type[KubeError], message: str, response: httpx2.Response | None) -> KubeError:
    if issubclass(kind, UnavailableError):
        return kind(message, retry_after_s=_retry_after_s(response))
    return kind(message)


def _retry_after_s(response: httpx2.Response | None) -> float:
    """Return the seconds in the header Retry-After; 0 if it is missing or holds a date."""
    text = response.headers.get("Retry-After", "") if response is not None else ""
    return min(float(text), RETRY_AFTER_S_MAX) if text.isascii() and text.isdigit() else 0.0
