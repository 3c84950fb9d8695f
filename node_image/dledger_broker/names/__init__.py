"""What a group says of itself when it is asked as a name server is (codes 105, 106 and 206)."""
