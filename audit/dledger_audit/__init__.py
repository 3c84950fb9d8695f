"""The audit of a group's logs: a Spark job that reads every member's log and reports faults.

This package captures the members' manifests, runs the checks and writes the report. Reading and
decoding segments belongs to the data source, `pyspark_dledger`. An audit never changes a member.

The program
    console_script, arguments  the command lines
    main           runs the command; writes the results
    interrupts     Ctrl-C while Spark runs
    progress       how far the work is, on standard error
    places         archives and histories in local folders, or in Hadoop file systems
    hadoop         folders of Hadoop file systems
    folder_lock, renewed_lock  the locks of local folders, and of file systems without locks
    output_places  checks of the places for the results, before the audit begins
    outputs        writes the results
One audit
    audit          from the members' manifests to findings and totals
    capture        the manifests: the state of the group that an audit judges
    waiting        waits for members that cannot be read yet
    passes         the two passes over the logs, on Spark
    settle         what moved while the logs were read, as opposed to what is damaged
    pieces         the comparison of one disputed piece, as a worker of Spark runs it
    checks         the checks: pure functions from digests to findings
    snapshots      members' snapshots of the state
    history        what earlier audits read
    verdict        the verdict on the findings
Its results
    report         the summary for the operator, and the text
    page           the HTML page
    explain        explanations of findings, with advice
    amounts_text, outlook_text  what compaction would drop, and what retention removes next
Spark
    session        the Spark session
    workers        how many workers it has
    tasks          runs tasks in workers
    class_data, make_class_data  a file from which Spark's JVM loads its classes faster
    executors      audits with executors on other machines
Compaction
    compaction     `compact` and `verify-compaction`
"""
