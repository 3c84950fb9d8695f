"""The pages that the kubelet requests: `/healthz`, whether to keep the process, and `/readyz`.

A process is ready once it has begun to watch, whether or not it holds a Lease, and stays ready. A
new release that waits for its permissions thus never replaces one that works.
"""

import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus

from aiohttp import web

logger = logging.getLogger(__name__)

WAITING = {"waiting": "the API server"}


class Probes:
    """What the two pages answer."""

    def __init__(self) -> None:
        self._check: Callable[[], Mapping[str, int]] | None = None
        self._is_ready = False

    def watches(self, check: Callable[[], Mapping[str, int]]) -> None:
        """From now on, answer with what `check` returns, or with the error that it raises."""
        self._check, self._is_ready = check, True

    def waits(self) -> None:
        """From now on, answer that the process is alive and waiting."""
        self._check = None

    async def healthz(self, _: web.Request) -> web.Response:
        """Return how many workers run; 500 after a worker crashed or a watch fell silent."""
        if self._check is None:
            return _page(WAITING)
        try:
            return _page({"workers": self._check()})
        except Exception as error:
            logger.exception("the liveness probe fails")
            return _page({"failed": str(error)}, HTTPStatus.INTERNAL_SERVER_ERROR)

    async def readyz(self, _: web.Request) -> web.Response:
        """Answer 503 until the process watches for the first time."""
        if self._is_ready:
            return _page({"ready": "yes"})
        return _page(WAITING, HTTPStatus.SERVICE_UNAVAILABLE)


def _page(content: Mapping[str, object], status: HTTPStatus = HTTPStatus.OK) -> web.Response:
    response = web.json_response(content, status=status)
    # kopf cancels connection tasks when it ends, so a later request would get no answer.
    response.force_close()
    return response
