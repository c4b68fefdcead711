"""One HTTP call to a gateway: bounded in time and size, its failures named."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any

import aiohttp

from gateways.adapter import (
    FailureKind,
    GatewayAccount,
    GatewayAnswer,
    GatewayError,
    Reading,
    cut_raw,
)
from gateways.quantities import parse_json
from servicekit.clock import Clock

BODY_LIMIT_BYTES = 256 * 1024
DEFAULT_TIMEOUT = timedelta(seconds=10)
CONNECT_TIMEOUT = timedelta(seconds=3)
LONGEST_RETRY_AFTER = timedelta(hours=1)
_CARD_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}", re.ASCII)


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A successful answer: when its headers came (UTC), its body, and how long it took in all."""

    observed_at: datetime
    body: bytes
    latency_ms: int

    @property
    def raw(self) -> str:
        """The body as text, cut to the size kept with observations."""
        return cut_raw(self.body.decode("utf-8", errors="replace"))

    def json(self) -> Any:
        """Parse the body, fractions as Decimal. Raises GatewayError."""
        return parse_json(self.body)


def to_answer(answer: HttpAnswer, parse: Callable[[Any], Reading | None]) -> GatewayAnswer:
    """Turn an HTTP answer into a reading; a refusal carries what was refused. Raises GatewayError."""
    try:
        reading = parse(answer.json())
    except GatewayError as error:
        raise GatewayError(
            error.failure, error.message, raw=answer.raw, latency_ms=answer.latency_ms
        ) from None
    return GatewayAnswer(
        observed_at=answer.observed_at, reading=reading, raw=answer.raw, latency_ms=answer.latency_ms
    )


def not_offered(platform: str, kind: str) -> GatewayError:
    """Build the failure of asking a platform for something it has no word for."""
    return GatewayError(FailureKind.NOT_FOUND, f"{platform} has no {kind}")


class HttpCaller:
    """Calls one account's gateway over the process's shared session."""

    def __init__(
        self,
        account: GatewayAccount,
        session: aiohttp.ClientSession,
        clock: Clock,
        timeout: timedelta = DEFAULT_TIMEOUT,
    ) -> None:
        self.clock = clock
        self._base_url = account.base_url.rstrip("/")
        self._session = session
        self._timeout = aiohttp.ClientTimeout(
            total=timeout.total_seconds(),
            connect=min(CONNECT_TIMEOUT, timeout).total_seconds(),
        )

    async def call(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
        json: object = None,
        form: Mapping[str, str] | None = None,
    ) -> HttpAnswer:
        """Send one request and read its answer; no retry, no redirect.

        Raises GatewayError for anything but a 2xx answer of at most `BODY_LIMIT_BYTES` within the time-out.
        """
        started = self.clock.monotonic()
        try:
            async with self._session.request(
                method,
                self._base_url + path,
                headers=headers,
                params=params,
                json=json,
                data=form,
                timeout=self._timeout,
                allow_redirects=False,
            ) as response:
                observed_at = self.clock.now()
                body = await _read_bounded(response)
                latency_ms = self._elapsed_ms(started)
                _raise_for_status(response, body, latency_ms, observed_at)
                return HttpAnswer(observed_at=observed_at, body=body, latency_ms=latency_ms)
        except TimeoutError:
            raise self._failure(FailureKind.TIMEOUT, "no answer in time", started) from None
        except (aiohttp.ClientConnectorError, aiohttp.ServerDisconnectedError, ConnectionError) as error:
            raise self._failure(FailureKind.UNREACHABLE, _described(error), started) from None
        except aiohttp.InvalidURL:
            raise self._failure(FailureKind.UNREACHABLE, "the account's address is no URL", started) from None
        except aiohttp.ClientPayloadError as error:
            raise self._failure(FailureKind.MALFORMED, _described(error), started) from None
        except (aiohttp.ClientError, OSError) as error:
            raise self._failure(FailureKind.UNREACHABLE, _described(error), started) from None

    def _failure(self, failure: FailureKind, message: str, started: float) -> GatewayError:
        return GatewayError(failure, message, latency_ms=self._elapsed_ms(started))

    def _elapsed_ms(self, started: float) -> int:
        return max(0, round((self.clock.monotonic() - started) * 1000))


def card_path(card_id: str) -> str:
    """Return a card's id as one path segment. Raises GatewayError when it could mean another path."""
    if _CARD_ID.fullmatch(card_id) is None:
        raise GatewayError(FailureKind.NOT_FOUND, "no card id that a gateway could know")
    return card_id


def parse_retry_after(text: str | None, now: datetime) -> timedelta | None:
    """Read a Retry-After header (RFC 9110 section 10.2.3): seconds or a date, at most one hour from now."""
    if text is None:
        return None
    if text.strip().isascii() and text.strip().isdigit():
        seconds = min(int(text.strip()[:9]), int(LONGEST_RETRY_AFTER.total_seconds()))
        return timedelta(seconds=seconds)
    try:
        until = parsedate_to_datetime(text)
    except ValueError:
        return None
    if until.tzinfo is None:
        until = until.replace(tzinfo=UTC)
    return min(max(until - now, timedelta(0)), LONGEST_RETRY_AFTER)


async def _read_bounded(response: aiohttp.ClientResponse) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > BODY_LIMIT_BYTES:
            response.close()
            raise GatewayError(FailureKind.MALFORMED, f"answer is larger than {BODY_LIMIT_BYTES} bytes")
        parts.append(part)
    return b"".join(parts)


def _raise_for_status(response: aiohttp.ClientResponse, body: bytes, latency_ms: int, now: datetime) -> None:
    status = response.status
    if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        return
    raise GatewayError(
        _failure_of(status),
        f"HTTP {status}",
        retry_after=parse_retry_after(response.headers.get("Retry-After"), now),
        raw=cut_raw(body.decode("utf-8", errors="replace")),
        latency_ms=latency_ms,
        http_status=status,
    )


def _failure_of(status: int) -> FailureKind:
    if status == HTTPStatus.NOT_FOUND:
        return FailureKind.NOT_FOUND
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return FailureKind.THROTTLED
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return FailureKind.SERVER_ERROR
    if status >= HTTPStatus.BAD_REQUEST:
        return FailureKind.REFUSED
    return FailureKind.MALFORMED


def _described(error: BaseException) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"can't connect: {error.os_error.strerror or type(error.os_error).__name__}"
    return f"connection failed: {type(error).__name__}"
