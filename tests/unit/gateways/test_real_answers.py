"""The adapters on recorded answers of real platforms, where the folder of real inputs is present."""

from datetime import date

from gateways.emnify import parse_connectivity, parse_month_stats
from gateways.onence import parse_onence_status, parse_onence_usage
from gateways.quantities import parse_json
from tests.support.real_data import real_answer, real_data


def test_onence_usage() -> None:
    answer = parse_json(
        real_answer("1nce-responses.jsonl", "1nce-sim-management-v1", "/v1/sims/{iccid}/usage")
    )
    assert parse_onence_usage(answer, since=date(2021, 6, 30)) == {"total_bytes": 2_803}
    assert parse_onence_usage(answer, since=date(2021, 7, 1)) is None


def test_onence_status_of_both_versions() -> None:
    first = real_answer("1nce-responses.jsonl", "1nce-sim-management-v1", "/v1/sims/{iccid}/status")
    second = real_answer("1nce-responses.jsonl", "1nce-sim-management-v2", "/v2/sims/{iccid}/status")
    assert parse_onence_status(parse_json(first)) == {"status": "offline"}
    assert parse_onence_status(parse_json(second)) == {"status": "online"}


def test_emnify_month() -> None:
    answer = parse_json(real_data("api", "emnify-endpoint-stats.json").read_bytes())
    assert parse_month_stats(answer) == {"total_bytes": 848_157}
    last_month = {"current_month": answer["last_month"]}
    assert parse_month_stats(last_month) == {"total_bytes": 29_166_235}


def test_emnify_connectivity_keeps_long_numbers_whole() -> None:
    answer = parse_json(real_data("api", "emnify-endpoint-connectivity.json").read_bytes())
    assert parse_connectivity(answer) == {"status": "online"}
    assert answer["location"]["iccid"] == 8988303010000000000
