"""A request about one child that the API server refuses, which must not keep the operator from
anything else.
"""

import logging

from dledger_operator.clients.errors import RefusedError
from dledger_operator.problem import Problem
from dledger_operator.spec.group import Group

logger = logging.getLogger(__name__)


def child_refused(group: Group, error: RefusedError) -> Problem:
    """Log a refusal; return it as a problem for the group's conditions."""
    logger.warning("%s/%s: %s", group.namespace, group.name, error)
    return Problem(reason="ChildRefused", message=str(error))
