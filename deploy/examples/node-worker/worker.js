// A worker in Node, made from the protos alone: claims tasks, renews claims, writes text, ends every attempt once.
//
//   npm install && node worker.js 127.0.0.1:7105 text-demo
//
// PROTOS names the folder of the .proto files, SLUICEGATE_AUTH_TOKEN the bearer token where the server wants one.
"use strict";

const path = require("node:path");
const { setTimeout: sleep } = require("node:timers/promises");
const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");

const PROTOS = process.env.PROTOS ?? path.join(__dirname, "../../../protos");
const CLAIM_WAIT_MS = 5_000;
const RENEW_EVERY_MS = Number(process.env.RENEW_EVERY_MS ?? 15_000);
const ROOM = 8;
const AGAIN = new Set([grpc.status.UNAVAILABLE, grpc.status.DEADLINE_EXCEEDED, grpc.status.RESOURCE_EXHAUSTED]);

/** A failure whose class decides whether another attempt is made. */
class TaskError extends Error {
  /** @param {"transient" | "throttled" | "permanent"} errorClass */
  constructor(errorClass, message, retryAfterMs = 0) {
    super(message);
    this.errorClass = errorClass;
    this.retryAfterMs = retryAfterMs;
  }
}

/** Kind -> what to run. A handler looks at `task.signal` when it waits, and returns the task's result. */
const HANDLERS = {
  "text.words": async (task) => {
    if (typeof task.payload.prompt !== "string") throw new TaskError("permanent", "prompt should be text");
    const words = task.payload.prompt.split(/\s+/).filter(Boolean);
    for (const word of words) {
      await task.write(`${word} `);
      await pause(task.payload.delay_ms ?? 0, task.signal);
    }
    return { words: words.length };
  },
};

class Worker {
  constructor(target, channels) {
    const options = { keepCase: true, longs: Number, enums: String, defaults: true, includeDirs: [PROTOS] };
    const definition = loader.loadSync("sluicegate/worker/v1/worker.proto", options);
    const { WorkerService } = grpc.loadPackageDefinition(definition).sluicegate.worker.v1;
    this.client = new WorkerService(target, grpc.credentials.createInsecure());
    this.metadata = new grpc.Metadata();
    const token = process.env.SLUICEGATE_AUTH_TOKEN;
    if (token) this.metadata.set("authorization", `Bearer ${token}`);
    this.channels = channels;
    this.running = new Map(); // owner token -> attempt
    this.claiming = null;
    this.draining = false;
  }

  call(method, request, seconds = 10) {
    return new Promise((resolve, reject) => {
      const deadline = Date.now() + seconds * 1000;
      const call = this.client[method](request, this.metadata, { deadline }, (error, answer) =>
        error ? reject(error) : resolve(answer),
      );
      if (method === "ClaimTasks") this.claiming = call;
    });
  }

  /** Repeats a write, which is safe, until the server answers or the attempt is over. */
  async write(method, request, signal) {
    for (;;) {
      try {
        return (await this.call(method, request)).results[0];
      } catch (error) {
        if (!AGAIN.has(error.code)) throw new TaskError("permanent", error.details || error.message);
        await pause(200 + Math.random() * 800, signal);
      }
    }
  }

  async run() {
    const renewing = setInterval(() => this.renew().catch(report), RENEW_EVERY_MS);
    while (!this.draining) {
      const room = ROOM - this.running.size;
      if (room === 0) {
        await Promise.race([...this.running.values()].map((attempt) => attempt.done));
        continue;
      }
      try {
        for (const task of await this.claim(room)) this.begin(task);
      } catch (error) {
        if (!this.draining) report(error);
        if (!this.draining) await pause(500 + Math.random() * 1000);
      }
    }
    await Promise.all([...this.running.values()].map((attempt) => attempt.done));
    clearInterval(renewing);
    this.client.close();
  }

  async claim(room) {
    const capabilities = Object.keys(HANDLERS).map((kind) => ({ kind, max_payload_version: 1 }));
    const request = {
      worker: `node-${process.pid}`,
      channels: this.channels,
      capabilities,
      max_tasks: room,
      wait_ms: CLAIM_WAIT_MS,
    };
    return (await this.call("ClaimTasks", request, CLAIM_WAIT_MS / 1000 + 10)).tasks;
  }

  /** Takes no more tasks and hands those that run back at once; the attempts do not count. */
  drain() {
    this.draining = true;
    this.claiming?.cancel();
    for (const attempt of this.running.values()) attempt.stop.abort("drain");
  }

  begin(task) {
    const attempt = { claim: task.claim, stop: new AbortController(), seq: 0 };
    if (this.draining) attempt.stop.abort("drain");
    this.running.set(task.claim.owner_token + task.claim.task_id, attempt);
    attempt.done = this.attempt(task, attempt)
      .catch(report)
      .finally(() => this.running.delete(task.claim.owner_token + task.claim.task_id));
  }

  /** Runs a handler and writes exactly one end; none once the claim is lost. */
  async attempt(task, attempt) {
    const { claim, stop } = attempt;
    let method = "CompleteTasks";
    let request;
    try {
      stop.signal.throwIfAborted();
      const result = await HANDLERS[task.kind](this.view(task, attempt));
      request = { completions: [{ claim, result_json: JSON.stringify(result ?? {}) }] };
    } catch (error) {
      if (stop.signal.reason === "lost") return;
      if (stop.signal.reason === "drain") return void (await this.call("ReleaseClaims", { claims: [claim] }));
      method = "FailTasks";
      request = { failures: [failure(claim, stop.signal.reason === "cancel" ? CANCELLED : error)] };
    }
    const answer = await this.write(method, request, lossOf(stop.signal));
    if (answer.outcome === "WRITE_OUTCOME_REFUSED") {
      const refused = failure(claim, new TaskError("permanent", answer.message));
      await this.write("FailTasks", { failures: [refused] }, lossOf(stop.signal));
    }
  }

  view(task, attempt) {
    const { claim, stop } = attempt;
    return {
      payload: JSON.parse(task.payload_json || "{}"),
      signal: stop.signal,
      write: async (text) => {
        attempt.seq += 1;
        const pieces = [{ claim, seq: attempt.seq, text }];
        const answer = await this.write("AppendText", { pieces }, stop.signal);
        if (answer.outcome === "WRITE_OUTCOME_CLAIM_LOST") stop.abort("lost");
        if (answer.outcome === "WRITE_OUTCOME_REFUSED") throw new TaskError("permanent", answer.message);
        stop.signal.throwIfAborted();
      },
    };
  }

  async renew() {
    const attempts = [...this.running.values()];
    if (attempts.length === 0) return;
    const answer = await this.call("RenewClaims", { claims: attempts.map(({ claim }) => claim) }, 5);
    answer.results.forEach((result, index) => {
      if (result.outcome !== "WRITE_OUTCOME_OK") attempts[index].stop.abort("lost");
      else if (result.cancel_requested) attempts[index].stop.abort("cancel");
    });
  }
}

const CANCELLED = { errorClass: "cancelled", message: "stopped on request" };

/** What a failed attempt says; anything but a TaskError is transient. */
function failure(claim, error) {
  const text = String(error?.message ?? error).replaceAll("\0", "\ufffd").toWellFormed();
  return {
    claim,
    error_class: error?.errorClass ?? "transient",
    error: text.slice(0, 16_000),
    retry_after_ms: error?.retryAfterMs ?? 0,
  };
}

/** A signal that ends the writing of an attempt's end: only the loss of its claim does. */
function lossOf(signal) {
  const lost = new AbortController();
  const look = () => signal.reason === "lost" && lost.abort("lost");
  signal.addEventListener("abort", look);
  look();
  return lost.signal;
}

/** Waits; a signal that fires ends the wait by throwing. */
function pause(ms, signal) {
  return sleep(ms, undefined, { signal });
}

function report(error) {
  console.error(error?.details ?? error);
}

const [target = "127.0.0.1:7105", ...channels] = process.argv.slice(2);
const worker = new Worker(target, channels.length ? channels : ["text-demo"]);
for (const name of ["SIGTERM", "SIGINT"]) process.once(name, () => worker.drain());
worker.run().then(() => process.exit(0));
