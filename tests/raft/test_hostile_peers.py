"""No message from a peer may break the core or remove committed entries."""

from hypothesis import given, settings
from hypothesis import strategies as st

from dledger_node.raft.messages import (
    AppendRequest,
    CompareRequest,
    HeartBeatRequest,
    HeartBeatResponse,
    Message,
    PreVoteRequest,
    PreVoteResponse,
    PushResponse,
    PushResult,
    TakeLeadershipRequest,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from dledger_node.raft.ready import Truncate
from dledger_sim.stage.driver import CoreDriver

PEERS = st.sampled_from(("n1", "n2"))
TERMS = st.integers(0, 6)
INDEXES = st.integers(-3, 12)
COMMITTED_INDEX = 2


@st.composite
def pushes(draw: st.DrawFn) -> AppendRequest:
    previous_term, entries_term, term = sorted(draw(st.tuples(TERMS, TERMS, TERMS)))
    previous_index = draw(st.integers(-1, 10))
    return AppendRequest(
        sender=draw(PEERS), receiver="n0", term=term, previous_index=previous_index,
        previous_term=-1 if previous_index < 0 else previous_term, first_index=previous_index + 1,
        last_index=previous_index + draw(st.integers(1, 5)), entries_term=entries_term,
        committed_index=draw(INDEXES), entries="bytes",
    )  # fmt: skip


FROM_TO = {"sender": PEERS, "receiver": st.just("n0"), "term": TERMS}
MESSAGES: st.SearchStrategy[Message] = st.one_of(
    pushes(),
    st.builds(
        CompareRequest, index=INDEXES, index_term=st.integers(-1, 6), committed_index=INDEXES,
        probe=st.integers(0, 9), **FROM_TO,
    ),
    st.builds(HeartBeatRequest, committed_index=INDEXES, round=st.integers(-1, 9), **FROM_TO),
    st.builds(HeartBeatResponse, round=st.integers(-1, 9), **FROM_TO),
    st.builds(
        VoteRequest, ledger_end_index=INDEXES, ledger_end_term=st.integers(-1, 6),
        take_leadership=st.booleans(), **FROM_TO,
    ),
    st.builds(VoteResponse, requested_term=TERMS, result=st.sampled_from(VoteResult), **FROM_TO),
    st.builds(
        PreVoteRequest, ledger_end_index=INDEXES, ledger_end_term=st.integers(-1, 6), **FROM_TO
    ),
    st.builds(PreVoteResponse, requested_term=TERMS, result=st.sampled_from(VoteResult), **FROM_TO),
    st.builds(TakeLeadershipRequest, **FROM_TO),
    st.builds(
        PushResponse, requested_term=TERMS, result=st.sampled_from(PushResult),
        match_index=INDEXES, ledger_end_index=INDEXES, conflict_term=st.integers(-1, 6),
        conflict_index=INDEXES, probe=st.none() | st.integers(0, 9), **FROM_TO,
    ),
)  # fmt: skip
INPUTS = st.one_of(
    MESSAGES,
    MESSAGES,
    st.sampled_from(("tick", "flush", "propose", "lost", "back", "read", "transfer")),
)


@settings(max_examples=500)
@given(st.lists(INPUTS, max_size=25))
def test_no_message_sequence_breaks_a_member_or_removes_committed_entries(
    inputs: list[Message | str],
) -> None:
    driver = CoreDriver(terms=[1, 1, 2, 2, 3], committed_index=COMMITTED_INDEX)
    term, committed_index = driver.raft.term, driver.raft.committed_index
    for given_ in inputs:
        match given_:
            case "tick":
                driver.tick(20)
            case "flush":
                driver.flush()
            case "propose":
                driver.propose()
            case "lost":
                driver.raft.link_lost("n1")
            case "read":
                driver.raft.read_index("read")
            case "transfer":
                driver.raft.transfer_leadership("n1")
            case "back":
                driver.raft.link_restored("n1")
            case _:
                driver.receive(given_)  # type: ignore[arg-type]
        driver.work()

        assert driver.raft.term >= term
        assert committed_index <= driver.raft.committed_index <= driver.raft.ledger_end_index
        assert driver.raft.durable_index <= driver.raft.ledger_end_index
        term, committed_index = driver.raft.term, driver.raft.committed_index
    cuts = [write.first_index for write in driver.writes if isinstance(write, Truncate)]
    assert all(first_index > COMMITTED_INDEX for first_index in cuts)
