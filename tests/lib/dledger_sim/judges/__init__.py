"""What must never happen. Judges look at disks, messages and answers, never into a core."""
