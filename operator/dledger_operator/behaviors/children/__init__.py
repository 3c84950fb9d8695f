"""Reconciling the objects that a group owns: which exist, which are applied, and why one is not.

group_reconcile   reconciles one group with what its other loops know
reconcile         one reconciliation: read what exists, decide, apply the children in order
planned           which children are applied, and what each of them is
newest            the version of the group's object that counts
ownership         whether the names of the children are free
roles             which role labels are in force: those of the master Service as applied
policies          when NetworkPolicies are made, and their removal
reconcile_failed  the problem that is reported when a reconciliation fails
next_look         when to reconcile again although no event calls for it
child_watch       which watch events of children call for a reconciliation
child_versions    which of these events may be another client's change
child_edits       how often a child that another client keeps changing is put back
"""
