"""`dledger-node store`: what a member's folder holds, and whether it is sound.

What belongs here: reading a store that may be damaged, as far as it can be read, and saying what is
wrong with it. What does not: mending it, which is recovery's part (`dledger_node.store`), and the
layout of records, which is `dledger_formats.log.disk`.

    command     the command line        verify        all findings, and the verdict
    output      text and JSON lines     index_check   index units against the entries
    findings    what can be wrong       walk          entries, one batch after another
                                        log_folder    segments as bytes that may be unreadable
"""
