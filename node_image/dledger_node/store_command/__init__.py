"""`dledger-node store`: inspect a member's folder; `dledger-node seed`: fill it for a new group.

What belongs here: reading a store that may be damaged, as far as possible, and reporting the
damage. What does not: repairs, which are those of recovery (`dledger_node.store`), and the layout
of records, which is in `dledger_formats.log.disk`.

    command         the command line
    output          text and JSON lines
    verify          check a whole store
    report          the result of `verify`: findings and a verdict
    findings        the kinds of findings, and their severity
    walk            entries, one batch after another, past damage
    log_folder      segments as raw bytes, which may be unreadable
    removed_front   segments whose removal was interrupted
    index_check     compare index units with the entries
    snapshot_check  check the snapshots
    seed            begin a member's folder with the log of an archive
"""
