"""Sets the size of a run."""

from dataclasses import dataclass, field

RECORDS = 1_000_000


@dataclass(frozen=True, slots=True)
class Plan:
    """Limits each part of a run, which takes some minutes by default.

    Every number is fixed: nothing repeats until a result is good enough.
    """

    requests: dict[int, int] = field(default_factory=lambda: {1: 600, 16: 2000, 64: 3000})  # by number of connections
    stream_connections: int = 16
    streams: int = 500
    open_streams: int = 1000
    accounts: int = 16  # so that no wallet's lock is measured
    offers: int = 5000
    records: int = RECORDS
    days: int = 365
    repeats: int = 20
    settle_seconds: float = 2.0  # before memory is read
    hold_seconds: float = 20.0  # of open streams, while their CPU time is measured
    paced_streams: int = 20
    warm_up: int = 10
    rounds: int = 5  # of one account next to many
    hot_requests: int = 1500  # of each, over 64 connections
    flood_seconds: float = 8.0
    field_seconds: int = 5  # of wrk at each number of connections
    field_connections: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128)
    field_streams: int = 10
    sustained: tuple[int, ...] = (16, 32, 64, 128, 256, 512)
    profile_requests: int = 40  # of each size, streamed and not
    commit_seconds: float = 10.0  # of each of two rounds of single committers
    counted: int = 50  # requests of each kind whose system calls and round trips are counted


SMALLEST = Plan(
    requests={1: 4, 16: 16, 64: 64},
    stream_connections=2,
    streams=4,
    open_streams=8,
    accounts=2,
    offers=5,
    records=1000,
    repeats=2,
    settle_seconds=0.1,
    hold_seconds=0.1,
    paced_streams=1,
    warm_up=1,
    rounds=1,
    hot_requests=64,
    flood_seconds=0.5,
    field_seconds=1,
    field_connections=(1, 2),
    field_streams=1,
    sustained=(1,),
    profile_requests=2,
    commit_seconds=0.5,
    counted=1,
)
