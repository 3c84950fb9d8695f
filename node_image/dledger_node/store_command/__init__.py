"""The commands on a member's folder while no node runs: `dledger-node store`, `dledger-node seed`.

They inspect the folder, cut a torn tail, begin the folder with an archive, and make a survivor a
group of its own. Inspecting reads a store that may be damaged, as far as possible, and changes
nothing. What does not belong here: how a tail is cut, which recovery does (`dledger_node.store`),
and the layout of records, which is in `dledger_formats.log.disk`.

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
    adopt           make a group of one survivor, after the majority was lost for good
    others          ask the other members of a group whether they are up
"""
