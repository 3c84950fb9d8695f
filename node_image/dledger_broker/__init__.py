"""A RocketMQ broker on a DLedger group: what follows from the log. No program runs it yet.

    state    the state that a log of messages and state records leads to; pure
    queues   consume queues: files that say where the messages of each queue are in the log
    errors   the errors of this package

Whatever is here derives from the log alone, so members that applied the same entries have the same
state and the same files. `docs/broker.md` says what is still missing.
"""
