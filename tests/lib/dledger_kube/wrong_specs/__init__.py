"""DLedgerGroups that a real API server refuses, and the page with its answers."""
