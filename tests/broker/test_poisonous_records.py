"""No request gets a record into the log that the state of a member cannot apply."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_broker.leading.log_owner import LogOwner
from dledger_broker.leading.record_draft import Place, RecordDraft
from dledger_broker.messages import retries
from dledger_broker.state.broker_state import BrokerState
from dledger_broker.state.topics import Topics
from dledger_broker_client.client import BrokerClient
from dledger_formats.rocketmq import delay_levels, topic_names
from dledger_formats.rocketmq.codes import ResponseCode
from dledger_formats.rocketmq.message_record import MessageRecord
from dledger_formats.rocketmq.sends import SendBackFields
from dledger_formats.rocketmq.subscription_groups import SubscriptionGroup
from dledger_node.services.drafts import Outcome

HOST = bytes(8)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)


@pytest.mark.parametrize("times", ["-1", "-10", "-2147483648"])
def test_a_send_that_was_consumed_less_than_zero_times_is_refused(
    client: BrokerClient, times: str
) -> None:
    """Returned, it would wait in a queue below 0, and end every member at each start."""
    answer = client.send("t", b"x", j=times)

    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert "reconsumeTimes" in (answer.remark or "")
    assert client.send("t", b"x").code == ResponseCode.SUCCESS


@given(times=INT32, delay_level=INT32, limit=st.none() | INT32)
def test_any_message_that_comes_back_gets_a_place_that_exists(
    times: int, delay_level: int, limit: int | None
) -> None:
    record = MessageRecord("t", 0, 0, 0, b"x", b"", 0, 0, 0, HOST, 0, HOST, times, 0)
    fields = SendBackFields(offset=0, group="g", delay_level=delay_level, max_reconsume_times=limit)

    _, again = retries.returned(record, fields, SubscriptionGroup(group_name="g"), HOST)

    assert Topics().refusal_of_place(again.topic, again.queue_id) is None
    assert again.reconsume_times >= 1
    if again.topic == topic_names.SCHEDULE_TOPIC:
        assert 0 <= again.queue_id < delay_levels.LEVEL_MAX


@pytest.mark.parametrize(
    "place", [("t", -1), (topic_names.SCHEDULE_TOPIC, -8), ("no topic!", 0), ("t", 1 << 30)]
)
def test_a_draft_with_a_place_that_cannot_be_is_never_proposed(place: Place) -> None:
    """Whatever lets such a draft through, the log stays one that members can apply."""
    proposed: list[RecordDraft] = []
    state = BrokerState()
    member = SimpleNamespace(
        machine=lambda _: state,
        drafts=SimpleNamespace(propose=lambda draft, _: proposed.append(draft)),
    )
    outcomes: list[Outcome] = []
    draft = RecordDraft((), [bytearray(b"x")], place, lambda _, outcome: outcomes.append(outcome))

    LogOwner(member, lambda: HOST).propose(draft)  # type: ignore[arg-type]

    assert (proposed, outcomes) == ([], [Outcome.REFUSED])
