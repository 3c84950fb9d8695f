"""A RocketMQ broker on a DLedger group: a program that is built on a member (`embedding`).

    console_script, main, program, settings   the program `dledger-broker`
    broker     its parts, and the clock that drives them
    serving    the parts that need the open consume queues, and the listeners
    request_table  which part answers which request, by code
    door       connections and requests of clients
    leading    what only the leader does: stamps, changes of the state
    registration   addresses, routes, and the registration at name servers
    queues     consume queues: files that say where the messages of each queue are in the log
    messages   requests to messages; pure
    state      the state that a log of messages and state records leads to; pure
    state_at_start   whether a member has applied the log with which it started
    pace       how often a broker polls its waiting requests
    metrics, state_figures, errors

State and queues derive from the log alone, so members that applied the same entries have the same
state and the same files. `docs/broker.md` says what works and what is missing.
"""
