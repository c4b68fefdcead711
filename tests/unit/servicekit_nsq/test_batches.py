import asyncio

import pytest

from servicekit.nsq.batches import Batch, Entry, PublishQueue


@pytest.fixture
def queue() -> PublishQueue:
    return PublishQueue(batch_bytes=100, batch_messages=3)


def entry(topic: str, *bodies: bytes, created: float = 0.0) -> Entry:
    return Entry(topic, list(bodies), asyncio.get_running_loop().create_future(), created)


def bodies_of(batch: Batch | None) -> list[bytes]:
    assert batch is not None
    return [body for entry in batch.entries for body in entry.bodies]


async def test_waiting_publishes_of_a_topic_travel_together_up_to_the_message_limit(
    queue: PublishQueue,
) -> None:
    for number in range(5):
        queue.add(entry("t", b"%d" % number))
    assert bodies_of(queue.take()) == [b"0", b"1", b"2"]
    assert bodies_of(queue.take()) == [b"3", b"4"]
    assert queue.take() is None
    assert (queue.size, bool(queue)) == (0, False)


async def test_bytes_limit_a_batch_but_a_large_entry_still_goes(queue: PublishQueue) -> None:
    queue.add(entry("t", bytes(90)))
    queue.add(entry("t", bytes(90)))
    queue.add(entry("t", bytes(500)))
    assert [len(bodies_of(queue.take())) for _ in range(3)] == [1, 1, 1]


async def test_an_entry_is_never_split(queue: PublishQueue) -> None:
    queue.add(entry("t", b"1", b"2"))
    queue.add(entry("t", b"3", b"4"))
    assert bodies_of(queue.take()) == [b"1", b"2"]


async def test_topics_take_turns(queue: PublishQueue) -> None:
    for number in range(6):
        queue.add(entry("a", b"a%d" % number))
    queue.add(entry("b", b"b"))
    assert [bodies_of(queue.take())[0] for _ in range(3)] == [b"a0", b"b", b"a3"]


async def test_cancelled_entries_are_left_out(queue: PublishQueue) -> None:
    gone, kept = entry("t", b"gone"), entry("t", b"kept")
    queue.add(gone)
    queue.add(kept)
    gone.future.cancel()
    assert bodies_of(queue.take()) == [b"kept"]
    queue.add(gone)
    assert queue.take() is None
    assert queue.size == 0


async def test_old_entries_expire_and_the_rest_stays(queue: PublishQueue) -> None:
    old, young = entry("t", b"old", created=1.0), entry("t", b"young", created=2.0)
    queue.add(old)
    queue.add(young)
    assert queue.expired(1.5) == [old]
    assert queue.clear() == [young]
    assert queue.size == 0
