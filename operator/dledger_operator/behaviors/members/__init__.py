"""The members of a group: their observed state, their membership, and scaling.

observe            reads the members' statuses, their claims, and why pods are missing
unready_reads      reads what watch events may not report while a member is not ready
observed_members   judges the members by what was read
stuck_pods         detects a pod that is being deleted but does not end
settings_in_force  which live settings a member does not have in force yet
membership         who votes and who learns, as leaders report it
scale              scales a group, one step at a time
scale_steps        decides the next step
steps              the steps
group_now          reads the present state of a group, for work outside of its loops
leader_client      the requests that behaviors send to a leader
"""
