"""The contract's own rules: raw text, secrets, card ids, Retry-After, registry."""

from datetime import UTC, datetime, timedelta
from typing import cast

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from gateways.adapter import RAW_LIMIT_BYTES, FailureKind, GatewayAccount, GatewayError, cut_raw
from gateways.credentials import bearer, read_credentials
from gateways.http_call import card_path, parse_retry_after
from gateways.registry import ADAPTERS, Gateways, UnknownGatewayKindError, gateway_kinds
from servicekit.clock import ManualClock

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
NO_SESSION = cast("aiohttp.ClientSession", None)


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40), st.integers(0, 60))
def test_raw_is_cut_on_a_character_border(text: str, limit: int) -> None:
    cut = cut_raw(text, limit)
    assert len(cut.encode()) <= limit
    assert text.startswith(cut)
    assert len(text.encode()) <= limit or len(cut.encode()) > limit - 4


def test_raw_limit_is_four_kibibytes() -> None:
    assert len(cut_raw("語" * 5000).encode()) == RAW_LIMIT_BYTES - 1


def test_a_lone_surrogate_can_be_cut() -> None:
    assert cut_raw("\ud800" * 3000, 8) == "?" * 8


def test_secrets_do_not_show() -> None:
    account = GatewayAccount("a", "onence", "http://gateway", SecretStr("hunter2"))
    assert "hunter2" not in repr(account)
    with pytest.raises(GatewayError) as refusal:
        read_credentials(SecretStr("{hunter2"))
    assert "hunter2" not in str(refusal.value)
    assert refusal.value.failure is FailureKind.REFUSED


def test_credentials_are_named_texts_or_one_token() -> None:
    assert read_credentials(SecretStr("")) == {}
    assert read_credentials(SecretStr(" abc ")) == {"token": "abc"}
    assert read_credentials(SecretStr('{"username": "u", "api_key": "k"}')) == {
        "username": "u",
        "api_key": "k",
    }
    with pytest.raises(GatewayError):
        read_credentials(SecretStr('{"username": 1}'))


@pytest.mark.parametrize("token", ["a\r\nX-Evil: 1", "tökén", None, 5])
def test_a_token_that_cannot_stand_in_a_header_is_refused(token: object) -> None:
    with pytest.raises(GatewayError):
        bearer(token)


@pytest.mark.parametrize(
    "card_id", ["", ".", "..", "../x", "a/b", "a?b", "a#b", "a%2Fb", "a b", "é", "1" * 65]
)
def test_a_card_id_never_means_another_path(card_id: str) -> None:
    with pytest.raises(GatewayError) as refusal:
        card_path(card_id)
    assert refusal.value.failure is FailureKind.NOT_FOUND


@pytest.mark.parametrize("card_id", ["89860040010000000002", "898600A2190000000001", "x_1.b-2"])
def test_a_card_id_is_one_segment(card_id: str) -> None:
    assert card_path(card_id) == card_id


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, None),
        ("0", timedelta(0)),
        ("7", timedelta(seconds=7)),
        ("999999999999999999999", timedelta(hours=1)),
        ("-5", None),
        ("soon", None),
        ("Sun, 01 Mar 2026 12:00:30 GMT", timedelta(seconds=30)),
        ("Sun, 01 Mar 2026 11:00:00 GMT", timedelta(0)),
        ("Sun, 01 Mar 2099 11:00:00 GMT", timedelta(hours=1)),
    ],
)
def test_reads_retry_after(header: str | None, expected: timedelta | None) -> None:
    assert parse_retry_after(header, NOW) == expected


def test_the_registry_keeps_one_adapter_per_account_until_it_changes() -> None:
    gateways = Gateways(NO_SESSION, ManualClock())
    account = GatewayAccount("a", "generic_http", "http://one")
    first = gateways.adapter(account)
    assert gateways.adapter(GatewayAccount("a", "generic_http", "http://one")) is first
    assert gateways.adapter(GatewayAccount("a", "generic_http", "http://two")) is not first


def test_every_registered_kind_builds_and_says_what_it_can_be_asked() -> None:
    gateways = Gateways(NO_SESSION, ManualClock())
    for kind in gateway_kinds():
        assert "traffic" in gateways.adapter(GatewayAccount(kind, kind, "http://gateway")).kinds
    assert gateway_kinds() == tuple(sorted(ADAPTERS))


def test_an_unknown_kind_names_the_known_ones() -> None:
    with pytest.raises(UnknownGatewayKindError, match="generic_http"):
        Gateways(NO_SESSION, ManualClock()).adapter(GatewayAccount("a", "carrier_pigeon", "http://x"))
