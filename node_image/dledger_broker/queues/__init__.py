"""Consume queues: for each queue of each topic, where its messages are in the log.

    builder      entries -> units, grouped by queue; pure
    feed         applied entries on their way into the queues
    unwritten    units that are in memory, and in no file yet
    files        the files of the units
    read_files   the files that are open for reading
    removed_units   which parts of the files go when the log has lost its front
    trimming     when that is looked at, in the thread that writes
    open_file    a file that is closed when it is no longer used
    checkpoint   up to which entry the files are complete
    queue_store  the three together: what a member keeps, and where it goes on after a start
    reader       queue offsets -> messages, each checked against the log
    entry_runs   what the reader reads of the log at once
    sound_entries   entries that match their units, checked in a few steps
    cached_reads    the reader of what is in the page cache
    kept_messages   which messages the log still has, by the units
    first_messages  the first message of each queue that the log still has, by the log itself
    first_messages_reading   reads the log for them, in a thread
    undelivered     delayed messages that are not delivered yet, which the log must keep
    errors          why a message cannot be read from its queue

The files are derived from the log and may be deleted at any time. A unit is written where its queue
offset says, never after the last one; so writing it again changes nothing, and a hole is visible.
"""
