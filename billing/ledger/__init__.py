"""Holds the ledger: entries, records, settlement, and the spool and checkpoints that keep requests until then."""
