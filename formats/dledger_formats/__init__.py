"""The formats that two or more programs share, and their conversion to and from values.

This package holds layouts, names, encoders, decoders and checks. It has no clock and does not know
which program is running. Only `net` and `console` do IO.

    log           entries, index units and memberships in DLedger's files
    protocol      remoting frames, and the requests of DLedger's client protocol
    rocketmq      what RocketMQ's clients, brokers and name servers exchange and store
    http          the status pages of a member
    net           sends a request to a member
    settings      the environment variables of a member
    peers         lists of members
    audit         the summary of an audit, which the operator reads
    json_objects  strict JSON, to and from dataclasses
    log_lines     log lines as text or JSON
    console       the standard streams of a program
    interrupts    what Ctrl-C does to a program
"""
