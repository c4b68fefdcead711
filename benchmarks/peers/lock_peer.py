"""Measure one other kind of lock the way `benchmarks/leases.py` measures slots; prints one line of JSON.

Run inside the peer's own environment: python lock_peer.py KIND REDIS_URL POSTGRES_DSN SECONDS. Needs nothing of this
project.
"""

# ruff: noqa: PLC0415 - each environment has the libraries of one kind alone

import json
import random
import statistics
import sys
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

WORKERS = 8
HAND_OVERS = 40
TTL = 60


def redis_py(url: str, _: str) -> Callable[[str], Any]:
    import redis

    client = redis.Redis.from_url(url)
    return lambda name: client.lock(name, timeout=TTL)


def python_redis_lock(url: str, _: str) -> Callable[[str], Any]:
    import redis
    import redis_lock

    client = redis.StrictRedis.from_url(url)
    return lambda name: redis_lock.Lock(client, name, expire=TTL, id=uuid.uuid4().hex)


def pottery(url: str, _: str) -> Callable[[str], Any]:
    import redis
    from pottery import Redlock

    client = redis.Redis.from_url(url)
    return lambda name: Redlock(key=name, masters={client}, auto_release_time=TTL)


class Counter:
    """A row that counts active slots and a row per lease, changed in one transaction; who finds it full asks again.

    The pause is a random one of 0.1 to 0.3 s, as kind as anything that asks again may be.
    """

    def __init__(self, connections: Any, name: str) -> None:
        self._connections = connections
        self._name = name
        self._lease = uuid.uuid4()

    def acquire(self) -> bool:
        while not self._try():
            time.sleep(random.uniform(0.1, 0.3))
        return True

    def _try(self) -> bool:
        with self._connections() as connection:
            taken = connection.execute(
                "UPDATE bench_limit SET active = active + 1 WHERE name = %s AND active < capacity RETURNING 1",
                (self._name,),
            ).fetchone()
            if taken is None:
                return False
            connection.execute(
                "INSERT INTO bench_lease VALUES (%s, %s, now() + interval '60 seconds')",
                (self._lease, self._name),
            )
            return True

    def release(self) -> None:
        with self._connections() as connection:
            connection.execute("DELETE FROM bench_lease WHERE id = %s", (self._lease,))
            connection.execute("UPDATE bench_limit SET active = active - 1 WHERE name = %s", (self._name,))


def database_counter(_: str, dsn: str) -> Callable[[str], Any]:
    import psycopg

    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS bench_limit (name text PRIMARY KEY, active int, capacity int)"
        )
        connection.execute(
            "CREATE TABLE IF NOT EXISTS bench_lease (id uuid PRIMARY KEY, name text, until timestamptz)"
        )
        names = [f"bench-{number}" for number in range(WORKERS)] + ["bench-hand-over"]
        for name in names:
            connection.execute("INSERT INTO bench_limit VALUES (%s, 0, 1) ON CONFLICT DO NOTHING", (name,))
    local = threading.local()

    class Transaction:
        def __enter__(self) -> Any:
            if not hasattr(local, "connection"):
                local.connection = psycopg.connect(dsn)
            return local.connection

        def __exit__(self, *exception: object) -> None:
            local.connection.commit()

    return lambda name: Counter(Transaction, name)


KINDS = {
    "redis-py": redis_py,
    "python-redis-lock": python_redis_lock,
    "pottery": pottery,
    "database counter": database_counter,
}


def work(make: Callable[[str], Any], name: str, seconds: float, pause: float) -> list[float]:
    """Acquire and release a lock of one's own, with random pauses around ``pause``; returns how long acquires took."""
    took = []
    ends_at = due = time.perf_counter() + 0.0
    ends_at += seconds
    while due < ends_at and time.perf_counter() < ends_at:
        if pause:
            due += random.expovariate(1 / pause)
            time.sleep(max(0.0, due - time.perf_counter()))
        lock = make(name)
        began = time.perf_counter()
        assert lock.acquire()
        took.append(time.perf_counter() - began)
        lock.release()
    return took


def all_work(make: Callable[[str], Any], seconds: float, pause: float) -> list[float]:
    with ThreadPoolExecutor(WORKERS) as threads:
        runs = [threads.submit(work, make, f"bench-{number}", seconds, pause) for number in range(WORKERS)]
        return [took for run in runs for took in run.result()]


def hand_overs(make: Callable[[str], Any]) -> list[float]:
    """Measure from a release to the return of the acquire that waited for it."""
    found = []
    with ThreadPoolExecutor(1) as thread:
        for _ in range(HAND_OVERS):
            holder = make("bench-hand-over")
            assert holder.acquire()

            def wait_for_it() -> float:
                waiter = make("bench-hand-over")
                assert waiter.acquire()
                got_at = time.perf_counter()
                waiter.release()
                return got_at

            waiting = thread.submit(wait_for_it)
            time.sleep(random.uniform(0.1, 0.3))  # it waits by then
            released_at = time.perf_counter()
            holder.release()
            found.append(waiting.result() - released_at)
    return found


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def main() -> None:
    kind, url, dsn, seconds = sys.argv[1:]
    make = KINDS[kind](url, dsn)
    all_work(make, 0.5, 0.0)
    full = len(all_work(make, float(seconds), 0.0)) / float(seconds)
    half = all_work(make, float(seconds), WORKERS / (full / 2))
    passed = hand_overs(make)
    print(
        json.dumps(
            {
                "pairs_per_second": full,
                "grant_p50": statistics.median(half),
                "grant_p99": quantile(half, 0.99),
                "hand_over_p50": statistics.median(passed),
                "hand_over_p99": quantile(passed, 0.99),
            }
        )
    )


if __name__ == "__main__":
    main()
