"""Holds the ledger: entries, records, settlement, and what keeps requests until they are settled."""
