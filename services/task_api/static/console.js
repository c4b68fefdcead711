// The console's first page: tasks, channels and the live text of one task through the browser's own EventSource.
const byId = (id) => document.getElementById(id);
const REFRESH_MS = 2000;
let source = null;
let watched = null;

async function call(path, options = {}) {
  const response = await fetch(path, { headers: { "content-type": "application/json" }, ...options });
  const body = response.status === 204 ? null : await response.json();
  if (!response.ok) throw new Error(body?.detail ?? response.statusText);
  return body;
}

function say(message) {
  byId("status").textContent = message;
}

async function guarded(work) {
  try {
    await work();
  } catch (error) {
    say(error.message);
  }
}

function watch(taskId) {
  source?.close();
  watched = taskId;
  byId("live").hidden = false;
  byId("watched").textContent = taskId;
  byId("text").textContent = "";
  byId("state").textContent = "";
  byId("cancel").hidden = false;
  byId("retry").hidden = true;
  source = new EventSource(`/api/tasks/${taskId}/text-events`);
  source.onmessage = (event) => append(event.data);
  source.addEventListener("text-json", (event) => append(JSON.parse(event.data)));
  source.addEventListener("reset", () => { byId("text").textContent = ""; });
  source.addEventListener("end", (event) => finish(JSON.parse(event.data)));
}

function append(text) {
  const view = byId("text");
  const atEnd = view.scrollHeight - view.scrollTop - view.clientHeight < 40;
  view.append(text);
  if (atEnd) view.scrollTop = view.scrollHeight;
}

function finish(end) {
  source.close();
  byId("state").textContent = end.error ? `${end.state}: ${end.error}` : end.state;
  byId("cancel").hidden = true;
  byId("retry").hidden = end.state === "succeeded";
  void refresh();
}

function row(cells) {
  const line = document.createElement("tr");
  for (const cell of cells) {
    const item = document.createElement("td");
    item.append(cell);
    line.append(item);
  }
  return line;
}

function taskRow(task) {
  const open = document.createElement("button");
  open.type = "button";
  open.textContent = task.task_id.slice(0, 8) + "…" + task.task_id.slice(-4);
  open.setAttribute("aria-label", `Watch task ${task.task_id}`);
  open.addEventListener("click", () => watch(task.task_id));
  return row([open, task.channel, task.kind, task.state, `${task.progress_percent} %`,
    new Date(task.created_at).toLocaleTimeString()]);
}

async function refresh() {
  await guarded(async () => {
    const [{ tasks }, { channels }] = await Promise.all([call("/api/tasks?limit=20"), call("/api/channels")]);
    const focused = document.activeElement?.getAttribute("aria-label");
    byId("tasks").replaceChildren(...tasks.map(taskRow));
    byId("channels").replaceChildren(...channels.map((channel) => row([channel.name, String(channel.concurrency),
      String(channel.running_count), String(channel.ready_count), String(channel.deferred_count),
      channel.paused ? "paused" : ""])));
    if (focused) document.querySelector(`[aria-label="${CSS.escape(focused)}"]`)?.focus();
  });
}

byId("create").addEventListener("submit", (event) => {
  event.preventDefault();
  void guarded(async () => {
    const task = await call("/api/tasks", { method: "POST", body: JSON.stringify({
      channel: "text-demo", kind: "text.demo",
      payload: { prompt: byId("prompt").value, words: Number(byId("words").value) } }) });
    say("");
    watch(task.task_id);
    await refresh();
  });
});
byId("cancel").addEventListener("click", () => void guarded(() => call(`/api/tasks/${watched}/cancel`, { method: "POST" })));
byId("retry").addEventListener("click", () => void guarded(async () => {
  await call(`/api/tasks/${watched}/retry`, { method: "POST" });
  watch(watched);
}));

void refresh();
setInterval(refresh, REFRESH_MS);
