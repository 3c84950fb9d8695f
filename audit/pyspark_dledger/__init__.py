"""The Spark data source `dledger`: the logs of a DLedger group's members, with one row per entry.

This package reads segments over the members' HTTP, and decodes and checks their bytes with numpy.
Checks that span several segments or members belong to the audit, `dledger_audit`. Only `source`
imports Spark. Spark finds the data source by itself; see `discovery`.

The data source
    discovery     how Spark finds it
    source        its interface to Spark: options, schema, pushed filters, tasks
    options       its options, parsed once
    log_view      the view of the log: each committed entry once, from an intact copy
    members_view  the view of the members: each entry of each member, damaged ones included
    stream        the view of the log for streaming queries
Which bytes to read
    group         the copies of a group's log that can be read now, and up to where
    copies        running members, and folders
    plan          which segments of a member, and which part of each
    splits        tasks of bounded bytes
    ranges        ranges of indexes
    turns         the order in which members are read
    intact        each entry once and in order, from the first copy that has it intact
Where the bytes come from
    files         the protocol that hides where a member's files are
    http_reader   a member's files over HTTP
    http_answers  checks of its answers
    bearer        the audit token that is sent with requests
    folder        the files of a member that does not run, or of an archive
    pace, patience  how fast a member is read, and how long a silent one is waited for
    shared_files  small files in which the processes of a machine agree on that
From bytes to rows
    layout        the records on disk as numpy types
    segments      one data segment, scanned from its first entry to its last
    sparse        the headers of a data file, without the large bodies between them
    locate        where entries are, without trust in any single byte
    decode        checks of located entries
    units         one index file, scanned alone
    columns       the columns of the data source, as Arrow batches
    digests       one row for up to 4096 entries
    packs         the entries of one piece, for a comparison entry by entry
    keys, pairs   the key and the value that an entry's body contains
"""

from pyspark_dledger.discovery import __getattr__

__all__ = ["DefaultSource", "__getattr__"]
