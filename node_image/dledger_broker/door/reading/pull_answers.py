"""The answers to pulls: messages, or where the next pull goes on."""

import asyncio

from dledger_broker.door.reading.pull_requests import Pull, PullRequests
from dledger_broker.queues.reader import Found
from dledger_formats.rocketmq.codes import ResponseCode
from dledger_formats.rocketmq.pulls import PullAnswerFields


def answer_found(pull: Pull, found: Found, min_offset: int, end_offset: int) -> None:
    """Answer with messages, or that none of the messages that were looked at is wanted."""
    fields = PullAnswerFields(
        suggest_which_broker_id=0,
        next_begin_offset=found.next_offset,
        min_offset=min_offset,
        max_offset=end_offset,
    )
    if not found.records:
        pull.call.answer(ResponseCode.PULL_RETRY_IMMEDIATELY, fields, remark="NO_MATCHED_MESSAGE")
        return
    counters = pull.call.counters
    counters.values["messages_pulled"] += len(found.records)
    counters.values["bytes_pulled"] += sum(map(len, found.records))
    if not pull.was_held:
        counters.pull_s.observe(asyncio.get_running_loop().time() - pull.call.arrived_s)
    pull.call.answer(ResponseCode.SUCCESS, fields, remark="FOUND", body=found.records)


def answer_nothing(
    pull: Pull,
    code: ResponseCode,
    end_offset: int,
    next_offset: int | None = None,
    min_offset: int = 0,
) -> None:
    """Answer without messages; the next pull goes on at `next_offset`, or where this one is."""
    fields = PullAnswerFields(
        suggest_which_broker_id=0,
        next_begin_offset=(
            max(pull.offset, pull.fields.queue_offset) if next_offset is None else next_offset
        ),
        min_offset=min_offset,
        max_offset=end_offset,
    )
    pull.call.answer(code, fields, remark=code.name)


class EndedPulls:
    """Answers held pulls whose time is up, or whose member stops."""

    def __init__(self, requests: PullRequests) -> None:
        self._requests = requests

    def late(self, pull: Pull, end_offset: int) -> None:
        """Answer a pull that must not wait longer."""
        if self.outdated(pull, end_offset):
            return
        skips = pull.offset > pull.fields.queue_offset
        code = ResponseCode.PULL_RETRY_IMMEDIATELY if skips else ResponseCode.PULL_NOT_FOUND
        answer_nothing(pull, code, end_offset)

    def closing(self, pull: Pull, end_offset: int) -> None:
        """Answer a pull of a member that closes, so that its client asks another one."""
        if not self.outdated(pull, end_offset):
            answer_nothing(pull, ResponseCode.PULL_RETRY_IMMEDIATELY, end_offset)

    def outdated(self, pull: Pull, end_offset: int) -> bool:
        """Let a client ask again if it has subscribed to other tags while its pull was held.

        The skipped messages did not have the earlier tags, and stock clients filter messages again
        by the tags that they had when they asked. Returns whether the pull is answered.
        """
        is_outdated = pull.was_held and self._requests.is_outdated(pull)
        if is_outdated:
            again, asked = ResponseCode.PULL_RETRY_IMMEDIATELY, pull.fields.queue_offset
            answer_nothing(pull, again, end_offset, asked)
        return is_outdated
