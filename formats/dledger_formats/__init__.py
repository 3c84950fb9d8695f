"""The formats that two or more programs share, and their conversion to and from values.

This package holds layouts, names, encoders, decoders and checks. It has no clock and does not know
which program is running. Only `net` (sockets), `seeding`, `folders` and `plain_files` (files),
`lock_holder` (/proc/locks), `console` and `status_line` (the standard streams) and `interrupts`
(signals) reach outside of the process.

    log           entries, index units and memberships in DLedger's files
    protocol      remoting frames, and the requests of DLedger's client protocol
    rocketmq      what RocketMQ's clients, brokers and name servers exchange and store
    http          the status pages of a member
    net           sends a request to a member
    seeding       copies the log of an archive to a member's folder
    folders       makes the names in a folder durable
    plain_files   reads small files, and never waits for one
    settings      the environment variables of a member
    command_line_variables  those of `dledger` and `dledger-audit`
    live_settings  those that a running member reads from a file
    admin_tokens  the file with a group's administration tokens
    peers         addresses and lists of members
    audit         the summary of an audit, which the operator reads
    quantities    quantities as Kubernetes writes them
    digits        whole numbers of digits alone
    json_objects  strict JSON, to and from dataclasses
    log_lines     log lines as text or JSON
    lock_holder   which process has a member's folder open
    console       the standard streams of a program
    status_line   the line of a terminal that is overwritten
    interrupts    what Ctrl-C does to a program
    command_lines  the parser of a program's command line
    missing_package  what a program reports if a library is not installed
"""
