"""Renews leases from a thread of its own, over a connection of its own.

A blocked event loop therefore loses no lease. The same thread gives back, in the background, what nobody waits for:
tokens whose acquire has an unknown outcome, and releases that failed.
"""

import heapq
import itertools
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import grpc

from servicekit.grpc_call import AUTHORIZATION_KEY
from servicekit.logs import get_logger
from servicekit.settings import AuthSettings
from sluicegate.lease.v1 import lease_pb2 as wire
from sluicegate.lease.v1 import lease_pb2_grpc
from sluicegate_client.local_lease import HeldLease, local_deadline

RENEW_SHARE = 0.25
CALL_SECONDS = 2.0
MOST_PER_CALL = 100
RELEASE_ATTEMPTS = 6

_FIRST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 2.0
CHANNEL_OPTIONS = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),
)

_log = get_logger(__name__)


@dataclass(slots=True)
class _Return:
    pool: str
    token: str
    attempts: int = 0


@dataclass(slots=True)
class _Renewal:
    lease: "weakref.ref[HeldLease]"
    token: str
    failures: int = 0


class Renewer:
    """Keeps leases alive until they are removed, lost, or their holder is gone.

    Args:
        target: the lease service, ``host:port``.
        auth: how to sign in.
    """

    def __init__(self, target: str, auth: AuthSettings | None = None) -> None:
        self._target = target
        token = auth.token.get_secret_value() if auth and auth.mode == "token" and auth.token else None
        self._metadata = ((AUTHORIZATION_KEY, f"Bearer {token}"),) if token else ()
        self._changed = threading.Condition()
        self._order = itertools.count()
        self._due: list[tuple[float, int, _Renewal | _Return]] = []
        self._renewals: dict[str, _Renewal] = {}
        self._closing = False
        self._thread: threading.Thread | None = None

    def add(self, lease: HeldLease) -> None:
        """Renew a lease every quarter of its ttl from now on."""
        renewal = _Renewal(weakref.ref(lease), lease.token)
        with self._changed:
            self._renewals[lease.token] = renewal
            self._push(time.monotonic() + lease.ttl_seconds * RENEW_SHARE, renewal)

    def remove(self, token: str) -> None:
        """Renew it no more."""
        with self._changed:
            self._renewals.pop(token, None)

    def renew_soon(self, token: str) -> None:
        """Renew a lease now, for example because its weight has become smaller."""
        with self._changed:
            old = self._renewals.get(token)
            if old is not None:
                self._renewals[token] = renewal = _Renewal(old.lease, token)
                self._push(time.monotonic(), renewal)

    def release_later(self, pool: str, token: str) -> None:
        """Give a token back in the background; six attempts within some ten seconds, then it is left to its expiry."""
        with self._changed:
            self._renewals.pop(token, None)
            self._push(time.monotonic(), _Return(pool, token))

    def close(self, within: float = CALL_SECONDS) -> None:
        """Make a last attempt at what is to be given back and end the thread; blocks up to ``within`` seconds."""
        with self._changed:
            self._closing = True
            thread, self._thread = self._thread, None
            self._changed.notify()
        if thread is not None:
            thread.join(within)

    def _push(self, at: float, item: "_Renewal | _Return") -> None:
        heapq.heappush(self._due, (at, next(self._order), item))
        if self._thread is None and not self._closing:
            self._thread = threading.Thread(target=self._run, name="slot renewals", daemon=True)
            self._thread.start()
        self._changed.notify()

    def _run(self) -> None:
        with grpc.insecure_channel(self._target, options=CHANNEL_OPTIONS) as channel:
            stub = lease_pb2_grpc.LeaseServiceStub(channel)
            while self._round(stub):
                pass

    def _round(self, stub: Any) -> bool:
        # A frame of its own: between rounds nothing here may keep a lease alive that its holder has forgotten.
        items = self._next()
        if items is None:
            return False
        calls = [*self._send_renewals(stub, items), *self._send_returns(stub, items)]
        for call, settle in calls:
            settle(call)
        return True

    def _next(self) -> "list[_Renewal | _Return] | None":
        with self._changed:
            while True:
                now = time.monotonic()
                items = self._take_due(now)
                if items:
                    return items
                if self._closing:
                    return None
                self._changed.wait(self._due[0][0] - now if self._due else None)

    def _take_due(self, now: float) -> "list[_Renewal | _Return]":
        taken: list[_Renewal | _Return] = []
        while self._due and (self._due[0][0] <= now or self._closing):
            item = heapq.heappop(self._due)[2]
            current = isinstance(item, _Return) or (
                self._renewals.get(item.token) is item and not self._closing
            )
            if current:
                taken.append(item)
        return taken

    def _send_renewals(self, stub: Any, items: "Iterable[_Renewal | _Return]") -> "Iterator[tuple[Any, Any]]":
        pools: dict[str, list[tuple[_Renewal, HeldLease]]] = {}
        for item in items:
            if not isinstance(item, _Renewal):
                continue
            lease = item.lease()
            if lease is None or lease.abandoned or lease.lost:
                self._drop(item)
            else:
                pools.setdefault(lease.pool, []).append((item, lease))
        for pool, renewals in pools.items():
            for some in _pages(renewals):
                yield self._send_renewal(stub, pool, some)

    def _send_renewal(
        self, stub: Any, pool: str, renewals: "Sequence[tuple[_Renewal, HeldLease]]"
    ) -> tuple[Any, Any]:
        request = wire.RenewRequest(
            pool=pool,
            items=[
                wire.RenewItem(token=lease.token, weight=lease.weight, ticket=lease.ticket)
                for _, lease in renewals
            ],
        )
        sent_at = time.monotonic()
        patience = min(CALL_SECONDS, min(lease.ttl_seconds for _, lease in renewals) * RENEW_SHARE)
        call = stub.Renew.future(request, timeout=max(patience, 0.15), metadata=self._metadata)
        return call, lambda call: self._settle_renewal(call, renewals, sent_at)

    def _settle_renewal(
        self, call: Any, renewals: "Sequence[tuple[_Renewal, HeldLease]]", sent_at: float
    ) -> None:
        try:
            results = call.result().results
        except (grpc.RpcError, grpc.FutureTimeoutError, grpc.FutureCancelledError) as error:
            _log.warning("leases could not be renewed", count=len(renewals), problem=_code(error))
            for renewal, lease in renewals:
                self._again(renewal, lease)
            return
        for (renewal, lease), result in zip(renewals, results, strict=True):
            if result.outcome == wire.RENEW_OUTCOME_LOST:
                self._drop(renewal)
                lease.lose("the lease had ended when it was to be renewed")
                continue
            renewal.failures = 0
            lease.ticket = result.ticket or lease.ticket
            lease.extend(local_deadline(sent_at, result.remaining_ms, lease.ttl_seconds))
            with self._changed:
                self._push(sent_at + lease.ttl_seconds * RENEW_SHARE, renewal)

    def _again(self, renewal: _Renewal, lease: HeldLease) -> None:
        pause = min(_pause(renewal.failures), lease.ttl_seconds * RENEW_SHARE / 2)
        renewal.failures += 1
        with self._changed:
            self._push(time.monotonic() + pause, renewal)

    def _drop(self, renewal: _Renewal) -> None:
        with self._changed:
            if self._renewals.get(renewal.token) is renewal:
                del self._renewals[renewal.token]

    def _send_returns(self, stub: Any, items: "Iterable[_Renewal | _Return]") -> "Iterator[tuple[Any, Any]]":
        pools: dict[str, list[_Return]] = {}
        for item in items:
            if isinstance(item, _Return):
                pools.setdefault(item.pool, []).append(item)
        for pool, returns in pools.items():
            for some in _pages(returns):
                request = wire.ReleaseRequest(pool=pool, tokens=[item.token for item in some])
                call = stub.Release.future(request, timeout=CALL_SECONDS, metadata=self._metadata)
                yield call, lambda call, some=some: self._settle_return(call, some)

    def _settle_return(self, call: Any, returns: Sequence[_Return]) -> None:
        try:
            call.result()
        except (grpc.RpcError, grpc.FutureTimeoutError, grpc.FutureCancelledError) as error:
            with self._changed:
                for item in returns:
                    item.attempts += 1
                    if item.attempts < RELEASE_ATTEMPTS and not self._closing:
                        self._push(time.monotonic() + _pause(item.attempts), item)
                    else:
                        _log.warning("a lease is left to its expiry", pool=item.pool, problem=_code(error))


def _pages(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), MOST_PER_CALL):
        yield items[start : start + MOST_PER_CALL]


def _pause(failures: int) -> float:
    return min(_FIRST_PAUSE_SECONDS * 2.0 ** min(failures, 8), _LONGEST_PAUSE_SECONDS)


def _code(error: BaseException) -> str:
    code = getattr(error, "code", None)
    return str(code()) if callable(code) else type(error).__name__
