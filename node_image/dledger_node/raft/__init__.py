"""The Raft core: pure rules, driven by ticks and messages.

The core decides when a member may vote, lead, append and commit. It uses no clock, socket, file,
log output or source of randomness of its own; the shell passes those in. It handles ranges of
indexes instead of entries, so its cost is per batch and not per message. Indexes start at 0 and an
empty log ends at -1, as in DLedger; the Raft paper starts at 1.

Interface
    core                `Raft`: the inputs, and the `Ready` batches that come out
    core_view           read-only properties of `Raft`: role, term, indexes, membership
    ready               `Ready`: the work for the shell, and the order in which to do it
    proposals           results and refusals of the shell's requests
    idle                how many of the next ticks change nothing
    messages            the messages between members
    config              settings
State
    member_state        the whole state of a member, with a class for each role
    log_terms           the term of each index of the log
    log_memberships     the membership entries of the log
    membership          voters and learners, and the possible changes
    recovered           the state that a start restores from disk, with checks
    invariants          the error for an impossible state of this member
Message dispatch
    steps               checks sender and term, then calls the rule for the member's role
    refusals            why a message was refused
Election
    leader_elector      timeouts, pre-votes, votes, changes of role
    yielding            a member whose state is behind lets others be elected first
    election_causes     why a member stood for election, and why it no longer led
    election_record     keeps that for logs and for `/leader`
    heartbeats          heartbeat rounds and check-quorum
    quorum              majority arithmetic
Replication
    entry_pusher        leader: find where logs agree, push entries, commit
    progress            leader: its knowledge of one peer's log
    commit_moves        leader: how often its committed index moves
    entry_handler       follower: append, truncate, confirm, commit
    completeness        follower: whether its leader's log holds all that is committed here
Membership
    changes             when a leader accepts a membership change
    electorate          who votes, and which peers a leader pushes to
Recovery of promises
    joining             a member without its promises, and when it may vote
    join_reasons        what such a member waits for, in words
    recalling           a member that checks whether its disk was rolled back
    recall_messages     the messages with which it asks its peers
    start_states        what a member that joins or recalls has learned of its peers
    marks               what a member remembers of its peers' promises
Reads
    reads               linearizable reads, by ReadIndex or lease
Leadership transfer
    transfer            on request, and to preferred leaders

Glossary
    promise         a vote, or the confirmation that an entry is durable.
    joining         the state of a member without its promises, since it is new or its disk was lost
                    or damaged. It does not vote until it has asked all other members and durably
                    holds what the leader held when asked.
    recalling       the state of a member that starts with its disk and asks its peers for its
                    marks. It makes no promises until they answer or `recall_ticks` have passed.
    mark            the last promise of a peer that a member remembers, in memory only.
    incarnation     a random number drawn at each process start; answers to an earlier incarnation
                    do not count.
    founding        the first start of a group. With `RaftConfig.new_group`, the first voters start
                    it once all of them are found blank (term 0, empty log), or with the log
                    of one archive and no later term. With `RaftConfig.needs_seed`, only with
                    the log of an archive.
    alone           said of a member that was the only one of its group while no other has led
                    since; it then holds every entry that was acknowledged.
    electorate      the voters by the membership in effect; learners and removed members excluded.
    progress        the leader's record of one peer: match index, next index, ranges in flight.
    probe           a COMPARE request: the question whether a peer holds a certain entry.
    verified index  the index up to which a follower's log is known to equal its leader's.
    hard state      what must be durable before any message that depends on it: term, vote, and
                    whether the member is joining or alone.
    proposal        bodies that the shell asks a leader to append, and the entries they became.
    ready           a batch of work for the shell: hard state, writes, messages, commits, reads.
"""
