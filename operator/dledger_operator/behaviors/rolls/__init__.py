"""Rolling out what the spec asks for: which pods are replaced, in which order, and when.

permission     whether the StatefulSet's pod template may change now
group_roll     rolls a group as far as its snapshot permits
roll           one roll, step by step; the members are asked right before each step
roll_steps     decides the next step
roll_state     what a step depends on: the pods, and what their members answered
pods_to_roll   the input of a step: the pods and their members' answers
readiness      for how long pods have been ready, by the operator's own clock
roll_or_scale  which comes first if a group is to be rolled and to be scaled
roll_plan      the plan of a roll, as the group's status shows it
"""
