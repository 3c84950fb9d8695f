"""A RocketMQ broker on a DLedger group: a program that is built on a member (`embedding`).

    console_script, main, program, settings   the program `dledger-broker`
    door       connections and requests of clients
    leading    what only the leader does: stamps, changes of the state
    names      the answers of a name server
    queues     consume queues: files that say where the messages of each queue are in the log
    messages   requests to messages; pure
    state      the state that a log of messages and state records leads to; pure
    metrics, errors

State and queues derive from the log alone, so members that applied the same entries have the same
state and the same files. `docs/broker.md` says what works and what is missing.
"""
