"""The simulator as a process, read through every adapter."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
import pytest_asyncio

from gateways.adapter import FailureKind, GatewayError, Kind
from gateways.registry import Gateways, gateway_kinds
from servicekit.clock import SystemClock
from tests.support.gateways import RunningSimulator, running_simulator


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def simulator() -> AsyncIterator[RunningSimulator]:
    async with running_simulator() as running:
        yield running


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def calm(simulator: RunningSimulator) -> None:
    await simulator.faults(reset=True)
    await simulator.control("DELETE", "stats")


@pytest.fixture
def gateways(simulator: RunningSimulator) -> Gateways:
    return Gateways(simulator.session, SystemClock(), timedelta(seconds=5))


pytestmark = pytest.mark.asyncio(loop_scope="module")


async def fails(call: object) -> GatewayError:
    with pytest.raises(GatewayError) as raised:
        await call  # type: ignore[misc]
    return raised.value


@pytest.mark.parametrize("account_id", ["harbor", "fjord", "mesa"])
async def test_a_demo_account_tells_the_truth_in_its_own_shape(
    simulator: RunningSimulator, gateways: Gateways, account_id: str
) -> None:
    adapter = gateways.adapter(simulator.account(account_id))
    for card_id in simulator.cards_of(account_id)[:4]:
        before = await simulator.control("GET", f"cards/{card_id}")
        total = (await adapter.fetch("traffic", card_id)).reading
        network = (await adapter.fetch("network", card_id)).reading
        after = await simulator.control("GET", f"cards/{card_id}")
        assert total is not None
        assert before["cycle_bytes"] <= int(total["total_bytes"]) <= after["cycle_bytes"]
        assert network is not None
        assert network["status"] in {before["network"], after["network"]}


@pytest.mark.parametrize("kind", gateway_kinds())
async def test_every_shape_can_be_read_stopped_and_resumed(
    simulator: RunningSimulator, gateways: Gateways, kind: str
) -> None:
    account = simulator.account("fjord", kind)
    card_id = simulator.cards_of("fjord")[5]
    adapter = gateways.adapter(account)
    for asked in sorted(adapter.kinds):
        assert (await adapter.fetch(asked, card_id)).reading is not None
    await adapter.stop(card_id)
    await adapter.stop(card_id)
    frozen = (await adapter.fetch("traffic", card_id)).reading
    assert (await adapter.fetch("traffic", card_id)).reading == frozen
    network = (await adapter.fetch("network", card_id)).reading
    assert network == {"status": "offline" if kind == "onence" else "suspended"}
    await adapter.resume(card_id)
    assert (await simulator.control("GET", f"cards/{card_id}"))["network"] != "suspended"
    stats = await simulator.stats("fjord")
    assert (stats["answers"]["stop"], stats["answers"]["resume"]) == (2, 1)
    assert stats["failures"] == {}


@pytest.mark.parametrize("kind", gateway_kinds())
async def test_an_unknown_card_is_not_found_in_every_shape(
    simulator: RunningSimulator, gateways: Gateways, kind: str
) -> None:
    error = await fails(
        gateways.adapter(simulator.account("mesa", kind)).fetch("traffic", "8900000000000000000")
    )
    assert error.failure is FailureKind.NOT_FOUND


@pytest.mark.parametrize(
    ("credentials", "kind"),
    [
        ('{"client_id": "i", "client_secret": "s"}', "onence"),
        ('{"application_token": "t"}', "emnify"),
        ('{"auth_key_id": "i", "auth_key": "k"}', "soracom"),
    ],
)
async def test_tokens_are_sold(
    simulator: RunningSimulator, gateways: Gateways, credentials: str, kind: str
) -> None:
    adapter = gateways.adapter(simulator.account("fjord", kind, credentials))
    assert (await adapter.fetch("traffic", simulator.cards_of("fjord")[0])).reading is not None


async def test_the_counter_restarts_with_the_cycle(simulator: RunningSimulator, gateways: Gateways) -> None:
    async with running_simulator(cards=5) as other:
        adapter = gateways.adapter(other.account("harbor"))
        card_id = other.cards_of("harbor")[0]
        first = await other.control("GET", f"cards/{card_id}")
        await other.control("POST", "clock", {"advance_seconds": 32 * 86_400})
        second = await other.control("GET", f"cards/{card_id}")
        assert second["cycle_start"] > first["cycle_start"]
        assert second["cycle_start"].endswith("T16:00:00+00:00")
        reading = (await adapter.fetch("traffic", card_id)).reading
        assert reading is not None
        assert int(reading["total_bytes"]) >= second["cycle_bytes"]


async def test_deltas_add_up_to_the_truth(simulator: RunningSimulator, gateways: Gateways) -> None:
    await simulator.faults(account_id="harbor", deltas=True)
    adapter = gateways.adapter(simulator.account("harbor"))
    card_id = simulator.cards_of("harbor")[1]
    total = 0
    for _ in range(5):
        reading = (await adapter.fetch("traffic", card_id)).reading
        assert reading is not None
        total += int(reading["delta_bytes"])
    truth = await simulator.control("GET", f"cards/{card_id}")
    assert 0 < total <= truth["cycle_bytes"]


async def test_the_server_sees_the_greatest_concurrency(
    simulator: RunningSimulator, gateways: Gateways
) -> None:
    await simulator.faults(account_id="mesa", latency_ms=100, latency_spread=0.01)
    adapter = gateways.adapter(simulator.account("mesa"))
    card_id = simulator.cards_of("mesa")[0]

    async def poll_in_turn(gate: asyncio.Semaphore) -> None:
        async with gate:
            await adapter.fetch("traffic", card_id)

    within = asyncio.Semaphore(5)
    await asyncio.gather(*(poll_in_turn(within) for _ in range(15)))
    lane = (await simulator.stats("mesa"))["lanes"]["poll"]
    assert (lane["limit"], lane["max_in_flight"], lane["over_limit"], lane["in_flight"]) == (5, 5, 0, 0)

    beyond = asyncio.Semaphore(8)
    await asyncio.gather(*(poll_in_turn(beyond) for _ in range(16)))
    lane = (await simulator.stats("mesa"))["lanes"]["poll"]
    assert 5 < lane["max_in_flight"] <= 8
    assert lane["over_limit"] > 0
    assert (await simulator.stats("mesa"))["answers"] == {"traffic": 31}


async def test_an_enforced_limit_throttles(simulator: RunningSimulator, gateways: Gateways) -> None:
    await simulator.faults(
        account_id="mesa", latency_ms=100, latency_spread=0.01, enforce_limits=True, retry_after_seconds=9
    )
    adapter = gateways.adapter(simulator.account("mesa"))
    calls = (adapter.fetch("traffic", simulator.cards_of("mesa")[0]) for _ in range(8))
    answers = await asyncio.gather(*calls, return_exceptions=True)
    throttled = [answer for answer in answers if isinstance(answer, GatewayError)]
    assert 1 <= len(throttled) <= 3
    assert {error.failure for error in throttled} == {FailureKind.THROTTLED}
    assert {error.retry_after for error in throttled} == {timedelta(seconds=9)}


@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        ({"outage": True}, FailureKind.SERVER_ERROR),
        ({"error_rate": 1}, FailureKind.SERVER_ERROR),
        ({"throttle_rate": 1}, FailureKind.THROTTLED),
        ({"refuse": True}, FailureKind.REFUSED),
        ({"lie": "huge"}, FailureKind.MALFORMED),
        ({"lie": "negative"}, FailureKind.MALFORMED),
        ({"lie": "text"}, FailureKind.MALFORMED),
    ],
)
@pytest.mark.parametrize("kind", gateway_kinds())
async def test_faults_come_through_every_shape(
    simulator: RunningSimulator,
    gateways: Gateways,
    kind: str,
    faults: dict[str, object],
    expected: FailureKind,
) -> None:
    await simulator.faults(account_id="fjord", **faults)
    adapter = gateways.adapter(simulator.account("fjord", kind))
    error = await fails(adapter.fetch("traffic", simulator.cards_of("fjord")[1]))
    assert error.failure is expected


async def test_a_hanging_gateway_times_out_and_is_counted(simulator: RunningSimulator) -> None:
    await simulator.faults(account_id="harbor", hang_rate=1)
    impatient = Gateways(simulator.session, SystemClock(), timedelta(seconds=0.2))
    adapter = impatient.adapter(simulator.account("harbor"))
    error = await fails(adapter.fetch("traffic", simulator.cards_of("harbor")[0]))
    assert error.failure is FailureKind.TIMEOUT
    async with asyncio.timeout(5):
        while (await simulator.stats("harbor"))["lanes"]["poll"]["in_flight"]:
            pass
    assert (await simulator.stats("harbor"))["cancelled"] == 1


@pytest.mark.parametrize("lie", ["backward", "zero"])
async def test_a_lie_that_looks_right_gets_through(
    simulator: RunningSimulator, gateways: Gateways, lie: str
) -> None:
    await simulator.faults(account_id="mesa", lie=lie)
    card_id = simulator.cards_of("mesa")[1]
    reading = (await gateways.adapter(simulator.account("mesa")).fetch("traffic", card_id)).reading
    truth = await simulator.control("GET", f"cards/{card_id}")
    assert reading is not None
    assert int(reading["total_bytes"]) < truth["cycle_bytes"]


@pytest.mark.parametrize("asked", ["traffic", "network", "realname"])
async def test_an_empty_answer_is_no_failure(
    simulator: RunningSimulator, gateways: Gateways, asked: Kind
) -> None:
    await simulator.faults(account_id="harbor", empty_rate=1)
    answer = await gateways.adapter(simulator.account("harbor")).fetch(asked, simulator.cards_of("harbor")[0])
    assert answer.reading is None
    assert answer.raw


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("faults", {"nope": 1}, 400),
        ("faults", {"error_rate": 7}, 400),
        ("faults", {"account_id": "nobody"}, 404),
        ("clock", {"advance_seconds": -1}, 400),
        ("clock", {}, 400),
    ],
)
async def test_controls_refuse_nonsense(
    simulator: RunningSimulator, path: str, body: dict[str, object], status: int
) -> None:
    async with simulator.session.post(f"{simulator.address}/_control/{path}", json=body) as response:
        assert response.status == status
        assert (await response.json())["error"]


async def test_sigterm_ends_it_cleanly_and_a_taken_port_says_so(simulator: RunningSimulator) -> None:
    async with running_simulator(cards=3) as other:
        port = other.address.rpartition(":")[2]
        second = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "gateways.simulator", "--port", port, stderr=asyncio.subprocess.PIPE
        )
        _, message = await asyncio.wait_for(second.communicate(), 30)
        assert second.returncode == 1
        assert message.startswith(f"cannot start: 127.0.0.1:{port}".encode())
        assert b"Traceback" not in message
        other.process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(other.process.wait(), 10) == 0


async def test_the_fleet_command_writes_what_is_served(simulator: RunningSimulator, tmp_path: object) -> None:
    cards = f"{tmp_path}/cards.csv"
    command = [
        sys.executable,
        "-m",
        "gateways.simulator",
        "fleet",
        "--out",
        cards,
        "--cards",
        "30",
        "--seed",
        "7",
    ]
    process = await asyncio.create_subprocess_exec(*command, "--accounts-out", f"{tmp_path}/accounts.csv")
    assert await asyncio.wait_for(process.wait(), 30) == 0
    with open(cards, encoding="utf-8") as file:  # noqa: ASYNC230, PTH123 - a small file of a test
        written = [line.split(",")[0] for line in file.read().splitlines()[1:]]
    assert written == [card.card_id for card in simulator.cards]
    assert json.dumps(written)
