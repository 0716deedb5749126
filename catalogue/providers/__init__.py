"""The state of providers: health, quota, counters, and how their errors are quoted."""
