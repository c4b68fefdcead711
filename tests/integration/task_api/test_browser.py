"""The browser's own EventSource in a real Chromium against a real task_api."""

import socket
from pathlib import Path
from typing import Any

from playwright.async_api import Page

from sluicegate.worker.v1 import worker_pb2
from sluicegate_client.demo_worker import make_worker
from sluicegate_client.worker import TaskContext
from tests.support.browser import chromium
from tests.support.lease_service import lease_settings, running_lease_service
from tests.support.task_api import (
    RunningTaskApi,
    running_task_api,
    running_worker,
    task_settings,
    task_stack,
)
from tests.support.task_api import make_worker as make_test_worker
from tests.support.waiting import eventually

FOLLOW = """
(taskId) => {
  window.seen = { text: "", resets: 0, farewells: 0, opens: 0, errors: 0, end: null, ids: [] };
  const source = window.source = new EventSource(`/api/tasks/${taskId}/text-events`);
  source.onopen = () => { seen.opens += 1; };
  source.onerror = () => { seen.errors += 1; };
  source.onmessage = (event) => { seen.text += event.data; seen.ids.push(event.lastEventId); };
  source.addEventListener("text-json", (event) => { seen.text += JSON.parse(event.data); });
  source.addEventListener("reset", () => { seen.text = ""; seen.resets += 1; });
  source.addEventListener("farewell", () => { seen.farewells += 1; });
  source.addEventListener("end", (event) => { seen.end = JSON.parse(event.data); });
}
"""


async def seen(page: Page) -> dict[str, Any]:
    result: dict[str, Any] = await page.evaluate(
        "() => ({...window.seen, readyState: window.source.readyState})"
    )
    return result


async def ended(page: Page) -> bool:
    return (await seen(page))["end"] is not None


async def closed(page: Page) -> bool:
    return (await seen(page))["readyState"] == 2


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def test_event_source_gets_all_text_in_order_and_stops_for_good_after_the_end(
    database: str, redis_url: str, tmp_path: Path
) -> None:
    words = [
        "\ufeffBOM ",
        "two\nlines",
        "\n",
        "\n\nend\n",
        " leading",
        "data: x\n",
        "\u2028\u2029\u0085",
        "\U0001f600\U0001f469\u200d\U0001f680",
        "carriage\rreturn\r\n",
        ":colon",
        "x" * 200_000,
    ]
    async with task_stack(database, redis_url) as api, chromium(tmp_path) as browser:
        worker = make_test_worker(api)

        @worker.handler("job")
        async def run(task: TaskContext) -> None:
            for word in task.payload["words"]:
                await task.text.write(word)
                await task.text.flush()

        page = await browser.new_page()
        await page.goto(f"{api.http}/console/")
        async with running_worker(worker):
            task = await api.create({"words": words})
            await page.evaluate(FOLLOW, task.task_id)
            await eventually(lambda: ended(page), within=30)
        found = await seen(page)
        assert found["text"] == "".join(words)
        assert found["end"] == {"state": "succeeded"}
        # Nobody closed it: it connects again with the terminal id, is told 204, and never comes back.
        await eventually(lambda: closed(page), within=20)
        assert found["ids"] == sorted(found["ids"], key=lambda text: tuple(map(int, text.split("."))))
        assert len(found["ids"]) == len(set(found["ids"]))


async def test_a_restart_in_the_middle_leaves_no_gap_and_no_repeat(
    database: str, redis_url: str, tmp_path: Path
) -> None:
    ports = {"http__port": str(free_port()), "grpc__port": str(free_port())}
    async with (
        running_lease_service(lease_settings(database, redis_url)) as lease,
        chromium(tmp_path) as browser,
    ):
        settings = task_settings(database, redis_url, lease, **ports)
        page = await browser.new_page()
        async with running_task_api(settings) as api:
            await api.save_channel()
            await api.create()
            [claimed] = await api.claim()
            claim = claimed.claim
            await page.goto(f"{api.http}/console/")
            await page.evaluate(FOLLOW, claim.task_id)
            await write(api, claim, range(1, 30))
            await eventually(lambda: has_text(page, "29;"))
        for start in (30, 60):
            async with running_task_api(settings) as api:
                await write(api, claim, range(start, start + 30))
                await eventually(lambda last=f"{start + 29};": has_text(page, last), within=20)
        async with running_task_api(settings) as api:
            await write(api, claim, range(90, 120))
            completion = worker_pb2.Completion(claim=claim)
            await api.workers.CompleteTasks(worker_pb2.CompleteTasksRequest(completions=[completion]))
            await eventually(lambda: ended(page), within=30)
            found = await seen(page)
            assert found["text"] == "".join(f"{number};" for number in range(1, 120))
            assert (found["resets"], found["farewells"] >= 1, found["opens"] >= 4) == (0, True, True)


async def write(api: RunningTaskApi, claim: worker_pb2.Claim, numbers: range) -> None:
    for number in numbers:
        piece = worker_pb2.TextPiece(claim=claim, seq=number, text=f"{number};")
        [result] = (await api.workers.AppendText(worker_pb2.AppendTextRequest(pieces=[piece]))).results
        assert result.outcome == worker_pb2.WRITE_OUTCOME_OK


async def has_text(page: Page, text: str) -> bool:
    return str((await seen(page))["text"]).endswith(text)


async def test_the_console_creates_watches_and_cancels(database: str, redis_url: str, tmp_path: Path) -> None:
    async with task_stack(database, redis_url) as api, chromium(tmp_path, dark=True) as browser:
        page = await browser.new_page()
        problems: list[str] = []
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        await page.goto(f"{api.http}/console/")
        background = await page.evaluate("() => getComputedStyle(document.body).backgroundColor")
        assert background in ("rgba(0, 0, 0, 0)", "rgb(18, 18, 18)")
        worker = make_worker(api.address, name="demo", concurrency=2)
        async with running_worker(worker):
            await page.fill("#prompt", "alpha beta")
            await page.fill("#words", "4")
            await page.press("#words", "Enter")
            await page.wait_for_function("() => document.querySelector('#state').textContent === 'succeeded'")
            assert await page.text_content("#text") == "alpha beta alpha beta "
            await page.fill("#words", "2000")
            await page.click("text=Create and watch")
            await page.wait_for_function("() => document.querySelector('#text').textContent.includes('beta')")
            await page.click("#cancel")
            await page.wait_for_function(
                "() => document.querySelector('#state').textContent.startsWith('cancelled')"
            )
            await eventually(lambda: states(page, ["cancelled", "succeeded"]))
        assert problems == []


async def states(page: Page, expected: list[str]) -> bool:
    found = await page.eval_on_selector_all("#tasks tr", "rows => rows.map(row => row.cells[3].textContent)")
    return bool(found == expected)


def test_the_page_names_no_other_host() -> None:
    folder = Path(__file__).parents[3] / "services" / "task_api" / "static"
    for path in folder.iterdir():
        assert "://" not in path.read_text(encoding="utf-8"), path
    assert sorted(path.name for path in folder.iterdir()) == ["console.js", "index.html", "style.css"]
