"""Which adapter speaks to which kind of gateway, and the adapters in use."""

from collections.abc import Callable
from datetime import timedelta

import aiohttp

from gateways.adapter import GatewayAccount, GatewayAdapter
from gateways.aliyun_iot import AliyunIotAdapter
from gateways.cisco_control_center import CiscoControlCenterAdapter
from gateways.emnify import EmnifyAdapter
from gateways.generic_http import GenericHttpAdapter
from gateways.http_call import DEFAULT_TIMEOUT
from gateways.onence import OnenceAdapter
from gateways.soracom import SoracomAdapter
from servicekit.clock import Clock

AdapterFactory = Callable[[GatewayAccount, aiohttp.ClientSession, Clock, timedelta], GatewayAdapter]

ADAPTERS: dict[str, AdapterFactory] = {
    "generic_http": GenericHttpAdapter,
    "onence": OnenceAdapter,
    "cisco_control_center": CiscoControlCenterAdapter,
    "emnify": EmnifyAdapter,
    "soracom": SoracomAdapter,
    "aliyun_iot": AliyunIotAdapter,
}


class UnknownGatewayKindError(ValueError):
    """An account names a kind of gateway that has no adapter."""


def gateway_kinds() -> tuple[str, ...]:
    """Return the kinds that have an adapter, sorted."""
    return tuple(sorted(ADAPTERS))


class Gateways:
    """The adapters of a process, one per account, over one shared session."""

    def __init__(
        self, session: aiohttp.ClientSession, clock: Clock, timeout: timedelta = DEFAULT_TIMEOUT
    ) -> None:
        self._session = session
        self._clock = clock
        self._timeout = timeout
        self._adapters: dict[str, tuple[GatewayAccount, GatewayAdapter]] = {}

    def adapter(self, account: GatewayAccount) -> GatewayAdapter:
        """Return the account's adapter, a new one when the account changed; never blocks.

        Raises UnknownGatewayKindError, and GatewayError(refused) when its credentials can't be read.
        """
        held = self._adapters.get(account.account_id)
        if held is not None and held[0] == account:
            return held[1]
        factory = ADAPTERS.get(account.kind)
        if factory is None:
            known = ", ".join(gateway_kinds())
            raise UnknownGatewayKindError(f"no adapter for gateway kind {account.kind!r}; known: {known}")
        adapter = factory(account, self._session, self._clock, self._timeout)
        self._adapters[account.account_id] = (account, adapter)
        return adapter
