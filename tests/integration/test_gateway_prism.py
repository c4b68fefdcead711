"""The adapters against mock servers of real platforms' own OpenAPI files: gateways that nobody here wrote."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import pytest
from pydantic import SecretStr

from gateways.adapter import FailureKind, GatewayAccount, GatewayError
from gateways.emnify import EmnifyAdapter
from gateways.onence import OnenceAdapter
from gateways.soracom import SoracomAdapter
from servicekit.clock import ManualClock, SystemClock
from tests.support.gateways import running_mock
from tests.support.node_tools import node_tool
from tests.support.real_data import real_data

CARD = "8988280666000000000"


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as shared:
        yield shared


async def test_onence_reads_its_platforms_own_examples(
    session: aiohttp.ClientSession, tmp_path: Path
) -> None:
    specification = real_data("specs", "1nce-sim-management-v1.openapi.yaml")
    async with running_mock(node_tool("prism"), specification, tmp_path / "prism.log") as address:
        account = GatewayAccount("a", "onence", address, SecretStr("any"))
        clock = ManualClock(datetime(2021, 6, 30, 12, tzinfo=UTC))
        adapter = OnenceAdapter(account, session, clock)

        traffic = await adapter.fetch("traffic", CARD)
        assert traffic.reading == {"total_bytes": 2_803}
        assert '"volume":"0.002803"' in traffic.raw
        assert traffic.observed_at == clock.now()
        assert (await adapter.fetch("network", CARD)).reading == {"status": "offline"}
        await adapter.stop(CARD)
        await adapter.resume(CARD)

        later = OnenceAdapter(account, session, SystemClock())
        assert (await later.fetch("traffic", CARD)).reading is None

        without_token = OnenceAdapter(GatewayAccount("b", "onence", address), session, clock)
        with pytest.raises(GatewayError) as refusal:
            await without_token.fetch("traffic", CARD)
        assert (refusal.value.failure, refusal.value.http_status) == (FailureKind.REFUSED, 401)


async def test_soracoms_smallest_integers_are_refused_not_added(
    session: aiohttp.ClientSession, tmp_path: Path
) -> None:
    specification = real_data("specs", "soracom.openapi.yaml")
    async with running_mock(node_tool("prism"), specification, tmp_path / "prism.log") as address:
        account = GatewayAccount("a", "soracom", address, SecretStr('{"api_key": "k", "token": "t"}'))
        adapter = SoracomAdapter(account, session, SystemClock())
        with pytest.raises(GatewayError) as refusal:
            await adapter.fetch("traffic", CARD)
        assert refusal.value.failure is FailureKind.MALFORMED
        assert "-9007199254740991" in refusal.value.message
        assert "-9007199254740991" in refusal.value.raw
        assert (await adapter.fetch("network", CARD)).reading == {"status": "online"}
        await adapter.stop(CARD)
        await adapter.resume(CARD)

        login = SecretStr('{"auth_key_id": "i", "auth_key": "k"}')
        buying = SoracomAdapter(GatewayAccount("b", "soracom", address, login), session, SystemClock())
        assert (await buying.fetch("network", CARD)).reading == {"status": "online"}


async def test_emnifys_overflowing_numbers_are_refused(
    session: aiohttp.ClientSession, tmp_path: Path
) -> None:
    specification = real_data("specs", "emnify.openapi.yaml")
    async with running_mock(node_tool("prism"), specification, tmp_path / "prism.log") as address:
        account = GatewayAccount("a", "emnify", address, SecretStr("any"))
        adapter = EmnifyAdapter(account, session, SystemClock())
        with pytest.raises(GatewayError) as missing:
            await adapter.fetch("traffic", CARD)
        assert missing.value.failure is FailureKind.NOT_FOUND

        adapter._sim_ids[CARD] = 12
        with pytest.raises(GatewayError) as refusal:
            await adapter.fetch("traffic", CARD)
        assert refusal.value.failure is FailureKind.MALFORMED
        assert "1.7976931348623157e+308" in refusal.value.raw
        # No stop and resume here: the file's text calls every member of that request optional and lets a customer
        # send `status` alone, its schema requires all four, and the mock server goes by the schema.
