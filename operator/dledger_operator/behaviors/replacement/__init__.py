"""`DLedgerReplace`: a new volume for a member that is lost for good."""
