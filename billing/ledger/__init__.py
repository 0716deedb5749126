"""The ledger: entries, settlement, what is not settled yet, verification."""
