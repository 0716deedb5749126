"""Holds the ledger: entries, records, settlement, and the files and rows that keep requests until they are settled."""
