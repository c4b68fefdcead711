"""What must hold between gateway, inbox, usage and collection, whatever happened in between."""

from tests.support.system import System
from tests.support.waiting import eventually

NOT_COLLECTED = """
    SELECT count(*) FROM ingest_inbox AS inbox
    WHERE NOT EXISTS (SELECT FROM collection_record AS record
        WHERE record.observation_id = inbox.observation_id)"""
NOT_APPLIED = """
    SELECT count(*) FROM collection_record AS record
    WHERE record.outcome = 'success' AND NOT EXISTS (SELECT FROM ingest_inbox AS inbox
        WHERE inbox.observation_id = record.observation_id)"""
USED_TWICE = """
    SELECT count(*) FROM (
        SELECT card.card_id FROM card
        LEFT JOIN ingest_inbox AS inbox ON inbox.card_id = card.card_id AND inbox.outcome = 'applied'
        GROUP BY card.card_id, card.applied_count HAVING count(inbox.observation_id) <> card.applied_count
    ) AS wrong"""
USED_WRONG = """
    SELECT count(*) FROM (
        SELECT card_id, sum(increment_bytes) AS added FROM ingest_inbox GROUP BY card_id
    ) AS inbox
    JOIN (SELECT card_id, sum(settled) AS used FROM usage_cycle GROUP BY card_id) AS cycle USING (card_id)
    WHERE inbox.added <> cycle.used"""


async def collected(system: System, more: int) -> None:
    """Wait for so many more collection rows."""
    count = "SELECT count(*) FROM collection_record"
    wanted = await system.number(count) + more

    async def there() -> bool:
        return await system.number(count) >= wanted

    await eventually(there, within=180)


async def assert_everything_once(system: System) -> None:
    """Check that what was applied was collected, and the other way round, and that nothing was added twice."""
    assert await system.number(NOT_COLLECTED) == 0
    assert await system.number(NOT_APPLIED) == 0
    assert await system.number(USED_TWICE) == 0
    assert await system.number(USED_WRONG) == 0
    assert await system.number("SELECT count(*) FROM ingest_quarantine") == 0


def answered(system: System) -> dict[str, int]:
    """Return the simulator's own count of successful answers by kind, and check the limits as it saw them."""
    kinds: dict[str, int] = {}
    for account in system.simulator("/_control/stats")["accounts"].values():
        for kind in ("traffic", "network", "realname"):
            kinds[kind] = kinds.get(kind, 0) + account["answers"].get(kind, 0)
        for lane in account["lanes"].values():
            assert lane["over_limit"] == 0
            assert lane["max_in_flight"] <= lane["limit"]
    return {kind: count for kind, count in kinds.items() if count}


async def recorded(system: System, table: str) -> dict[str, int]:
    rows = await system.rows(f"SELECT kind, count(*) FROM {table} GROUP BY kind")  # noqa: S608
    return {row["kind"]: row["count"] for row in rows}
