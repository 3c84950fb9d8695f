"""What the operator tells people: a group's status and its Events."""
