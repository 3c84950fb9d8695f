"""The commands of `dledger`, one module each.

`add_parser` defines the command's arguments, `run` executes it. Does not belong here: the protocol,
and anything that another program might call.

Appending
    append         `dledger append`
    bodies, lines  where its bodies come from
    append_report, tally, ranges  what it prints about their outcomes
    named_producer, producer_record, earlier_run  `--producer NAME`, and what an earlier run left
Reading
    get, tail      `dledger get` and `dledger tail`
    entries        the formats in which they print entries
Copies of a log
    export         `dledger export`
    import_        `dledger import`
    import_guard, import_mapping  other clients that append meanwhile, and the entries' new indexes
The group
    status, health  `dledger status`, `dledger health` and `dledger wait`
    group          `dledger group`
    group_local, local_events  `dledger group local`, and what it prints while the group runs
    member, transfer, register  the commands of these names
    admin_token, audit_token  the tokens of a group
    bench          `dledger bench`
What commands share
    options, profiles, group_client  from options and profiles to a client
    printing, streams, exits  what is printed, and exit codes
    notice, progress  what a terminal shows meanwhile
    signals        signals that end a command cleanly
    completion, member_names  what a shell completes
"""
