"""What the simulated cards do: counters that grow and restart with the cycle, and states that flip.

Everything is a function of the seed, the card and the instant, so a restarted simulator goes on where it was; only
cards that were stopped and resumed through the API have memory.
"""

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from gateways.adapter import NetworkStatus, RealnameStatus
from gateways.cycles import cycle_start
from gateways.simulator.fleet import DemoAccount, DemoCard

NETWORK_FLIP_SECONDS = 600
REALNAME_FLIP_SECONDS = 3600
ONLINE_PERCENT = 85
VERIFIED_PERCENT = 90
_WAVE_SECONDS = 3600.0
_WAVE_DEPTH = 0.8
_SLOWEST_BYTES_PER_SECOND = 5
_FASTEST_BYTES_PER_SECOND = 20_000
_IDLE_PERCENT = 5


@dataclass(slots=True)
class _Stops:
    """Bytes a card did not use because it was stopped, and since when it is stopped (None: it works)."""

    stopped_at: datetime | None = None
    pauses: tuple[tuple[datetime, datetime], ...] = ()


class SimulatedCard:
    """One card: its counter and its states at any instant."""

    def __init__(self, seed: int, card: DemoCard, account: DemoAccount) -> None:
        digest = hashlib.blake2b(f"{seed} {card.card_id}".encode(), digest_size=16).digest()
        self.card = card
        self.account = account
        self.sim_id = int.from_bytes(digest[:4], "big") & 0x7FFFFFFF
        self._zone = ZoneInfo(account.time_zone)
        self._noise = int.from_bytes(digest[4:8], "big")
        spread = math.log(_FASTEST_BYTES_PER_SECOND / _SLOWEST_BYTES_PER_SECOND)
        share = int.from_bytes(digest[8:10], "big") / 65_535
        idle = digest[10] % 100 < _IDLE_PERCENT
        self._bytes_per_second = 0.0 if idle else _SLOWEST_BYTES_PER_SECOND * math.exp(spread * share)
        self._stops = _Stops()
        self._delta_taken_at: datetime | None = None

    @property
    def is_stopped(self) -> bool:
        """Whether the card was suspended at the carrier."""
        return self._stops.stopped_at is not None

    def stop(self, at: datetime) -> None:
        """Suspend the card; its counter stands still."""
        if self._stops.stopped_at is None:
            self._stops.stopped_at = at

    def resume(self, at: datetime) -> None:
        """Let the card work again; its counter goes on from where it stood."""
        if self._stops.stopped_at is not None:
            self._stops.pauses += ((self._stops.stopped_at, at),)
            self._stops.stopped_at = None

    def cycle_start(self, at: datetime) -> datetime:
        """Return when the cycle that holds an instant began, in the account's zone."""
        return cycle_start(at, self.account.reset_day, self._zone)

    def cycle_bytes(self, at: datetime) -> int:
        """Return the bytes used in the cycle that holds an instant, up to it."""
        return self.bytes_between(self.cycle_start(at), at)

    def bytes_between(self, start: datetime, end: datetime) -> int:
        """Return the bytes used between two instants; adjoining stretches add up exactly."""
        used = self._position(end) - self._position(start)
        pauses = self._stops.pauses
        if self._stops.stopped_at is not None:
            pauses = (*pauses, (self._stops.stopped_at, end))
        for paused_at, resumed_at in pauses:
            first, last = max(start, paused_at), min(end, resumed_at)
            if first < last:
                used -= self._position(last) - self._position(first)
        return max(used, 0)

    def take_delta(self, at: datetime) -> int:
        """Return the bytes used since the last taking; the first time, since the cycle began."""
        since = self._delta_taken_at or self.cycle_start(at)
        self._delta_taken_at = at
        return self.bytes_between(since, at)

    def utc_days(self, start: datetime, end: datetime) -> list[tuple[date, int]]:
        """Return the bytes of each UTC day between two instants, the last one so far."""
        days: list[tuple[date, int]] = []
        day_start = start
        while day_start < end:
            next_midnight = datetime(day_start.year, day_start.month, day_start.day, tzinfo=UTC) + timedelta(
                days=1
            )
            day_end = min(next_midnight, end)
            days.append((day_start.date(), self.bytes_between(day_start, day_end)))
            day_start = next_midnight
        return days

    def network(self, at: datetime) -> NetworkStatus:
        """Return the network status at an instant; it flips every ten minutes or so."""
        if self.is_stopped:
            return NetworkStatus.SUSPENDED
        online = self._draw("network", at, NETWORK_FLIP_SECONDS) < ONLINE_PERCENT
        return NetworkStatus.ONLINE if online else NetworkStatus.OFFLINE

    def realname(self, at: datetime) -> RealnameStatus:
        """Return the real-name status at an instant; few cards change, and by the hour."""
        if self._noise % 100 < VERIFIED_PERCENT:
            return RealnameStatus.VERIFIED
        drawn = self._draw("realname", at, REALNAME_FLIP_SECONDS)
        return (RealnameStatus.UNVERIFIED, RealnameStatus.PENDING, RealnameStatus.VERIFIED)[drawn % 3]

    def _position(self, at: datetime) -> int:
        seconds = at.timestamp()
        turn = 2 * math.pi / _WAVE_SECONDS
        wave_seconds = _WAVE_DEPTH * math.sin((seconds + self._noise % 3600) * turn) / turn
        return math.floor(self._bytes_per_second * (seconds + wave_seconds))

    def _draw(self, what: str, at: datetime, period: int) -> int:
        slot = int(at.timestamp() + self._noise % period) // period
        text = f"{what} {self._noise} {slot}"
        return hashlib.blake2b(text.encode(), digest_size=2).digest()[0] * 100 // 256


class World:
    """All simulated cards and the simulator's own time, which can be moved on."""

    def __init__(
        self,
        seed: int,
        accounts: Sequence[DemoAccount],
        cards: Sequence[DemoCard],
        now: Callable[[], datetime],
    ) -> None:
        self.accounts = {account.account_id: account for account in accounts}
        self.cards = {
            (card.account_id, card.card_id): SimulatedCard(seed, card, self.accounts[card.account_id])
            for card in cards
        }
        self.by_sim_id = {(card.card.account_id, card.sim_id): card for card in self.cards.values()}
        self._now = now
        self._advanced = timedelta(0)

    def now(self) -> datetime:
        """Return the simulator's instant, UTC."""
        return self._now() + self._advanced

    def advance(self, by: timedelta) -> None:
        """Move the simulator's time on."""
        self._advanced += by
