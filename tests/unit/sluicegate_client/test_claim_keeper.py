import threading
from collections.abc import Sequence

import pytest

from sluicegate_client.claim_keeper import ClaimKeeper, ClaimKey, Renewal

FIRST, SECOND = ClaimKey("a", "o", 1), ClaimKey("b", "o", 1)
WITHIN = 10.0


class Server:
    """Answers renewals as a test says."""

    def __init__(self) -> None:
        self.lost: set[ClaimKey] = set()
        self.cancel: set[ClaimKey] = set()
        self.away = False
        self.calls: list[list[ClaimKey]] = []
        self.called = threading.Event()

    def renew(self, claims: Sequence[ClaimKey]) -> Sequence[Renewal]:
        self.calls.append(list(claims))
        self.called.set()
        if self.away:
            raise ConnectionError("away")
        return [Renewal(claim.task_id, claim in self.lost, 45, claim in self.cancel) for claim in claims]


@pytest.fixture
def server() -> Server:
    return Server()


def keeper_for(server: Server, *, every: float = 0.02, margin: float = 0.05) -> ClaimKeeper:
    keeper = ClaimKeeper(server.renew, every_seconds=every, margin_seconds=margin)
    keeper.start()
    return keeper


def add(
    keeper: ClaimKeeper, claim: ClaimKey, remaining: float = 45
) -> tuple[threading.Event, threading.Event]:
    lost, cancelled = threading.Event(), threading.Event()
    keeper.add(claim, remaining_seconds=remaining, on_lost=lost.set, on_cancel=cancelled.set)
    return lost, cancelled


def test_all_claims_are_renewed_in_one_call(server: Server) -> None:
    keeper = keeper_for(server)
    add(keeper, FIRST)
    add(keeper, SECOND)
    while [FIRST, SECOND] not in server.calls:
        server.called.clear()
        assert server.called.wait(WITHIN)
    keeper.stop()


def test_a_lost_claim_is_told_and_kept_no_longer(server: Server) -> None:
    server.lost = {FIRST}
    keeper = keeper_for(server)
    lost, cancelled = add(keeper, FIRST)
    assert lost.wait(WITHIN)
    other_lost, _ = add(keeper, SECOND)
    while [SECOND] not in server.calls:
        server.called.clear()
        assert server.called.wait(WITHIN)
    assert not other_lost.is_set()
    assert not cancelled.is_set()
    keeper.stop()


def test_a_cancel_request_is_told_once(server: Server) -> None:
    server.cancel = {FIRST}
    keeper, told = keeper_for(server), []
    done = threading.Event()
    keeper.add(
        FIRST,
        remaining_seconds=45,
        on_lost=lambda: told.append("lost"),
        on_cancel=lambda: told.append("cancel"),
    )
    while len(server.calls) < 5:
        done.wait(0.01)
    assert told == ["cancel"]
    keeper.stop()


def test_a_claim_that_can_not_be_renewed_is_lost_before_it_ends(server: Server) -> None:
    server.away = True
    keeper = keeper_for(server)
    lost, _ = add(keeper, FIRST, remaining=0.2)
    assert lost.wait(WITHIN)
    keeper.stop()


def test_a_server_that_comes_back_keeps_the_claim(server: Server) -> None:
    server.away = True
    keeper = keeper_for(server)
    lost, _ = add(keeper, FIRST, remaining=30)
    assert server.called.wait(WITHIN)
    server.away = False
    count = len(server.calls)
    while len(server.calls) < count + 3:
        server.called.clear()
        assert server.called.wait(WITHIN)
    assert not lost.is_set()
    keeper.stop()


def test_hundreds_of_claims_are_renewed_in_calls_of_a_hundred(server: Server) -> None:
    keeper = keeper_for(server, every=0.2)
    for number in range(250):
        add(keeper, ClaimKey(str(number), "o", 1))
    while sum(map(len, server.calls)) < 250:
        server.called.clear()
        assert server.called.wait(WITHIN)
    assert max(map(len, server.calls)) == 100
    keeper.stop()
