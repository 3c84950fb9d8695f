"""The state of a broker: the result of applying the group's messages and state records in order.

    broker_state      the state machine: every message, in log order
    changes           what each kind of state record changes
    tables            the parts of the state, together
    tables_shown      the same, as administrators and other brokers see it
    topics            topics with their settings, and the next offset of each queue
    consumer_offsets  where consumer groups continue
    groups            consumer groups, their clients, and which client holds which queue
    dump              the state as the bytes of a snapshot

Everything here is pure: no clock, randomness, file or asyncio. Times come from the records.
"""
