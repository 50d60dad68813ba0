import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { after, before, describe, test } from "node:test";
import {
  Client,
  ConnectionFailedError,
  DeadlineExceededError,
  OverloadedError,
  RequestError,
  ServerError,
  UnavailableError,
  UnexpectedAnswerError,
} from "../dist/index.js";

const { LISTWRIGHT_URL: url, LISTWRIGHT_KEY: apiKey, LISTWRIGHT_LISTS: path } = process.env;
const request = { features: [[1, null]], feature_names: ["price", "stars"] };
const PATIENCE = { timeout: 100_000 };

describe("a service", { skip: url ? false : "no LISTWRIGHT_URL" }, () => {
  const client = url && new Client(url, { apiKey, ...PATIENCE });
  const { names, lists, golden } = url ? JSON.parse(readFileSync(path, "utf-8")) : {};

  test("ranks the golden lists, as a matrix and as rows", async () => {
    for (const [at, features] of lists.entries()) {
      const candidates = features.map((row) => ({
        features: Object.fromEntries(row.map((value, column) => [names[column], value])),
      }));
      for (const form of [{ features, feature_names: names }, { candidates }]) {
        const ranking = await client.rerank({ ...form, raw_scores: true });
        assert.deepEqual(ranking.scores, golden[at].scores);
        assert.deepEqual(ranking.results.map((result) => result.index), golden[at].order);
      }
    }
  });

  test("takes NaN for null", async () => {
    const [first] = lists;
    const holes = first.map((row) => row.map((value, column) => (column === 0 ? NaN : value)));
    const nulls = first.map((row) => row.map((value, column) => (column === 0 ? null : value)));
    const ranking = await client.rerank({ features: holes });
    assert.deepEqual(ranking.scores, (await client.rerank({ features: nulls })).scores);
  });

  test("explains", async () => {
    const explained = await client.explain({ features: lists[0], candidate: 1 });
    assert.equal(explained.explanations[0].candidate.index, 1);
  });

  test("says what it serves, and that it is ready", async () => {
    assert.deepEqual((await client.info()).features.map((feature) => feature.name), names);
    assert.equal(await client.ready(), true);
  });

  test("refuses with a problem", async () => {
    const error = await client.rerank({ features: [[1]], feature_names: ["prise"] }).catch((refusal) => refusal);
    assert.ok(error instanceof RequestError);
    assert.equal(error.status, 409);
    assert.equal(error.type, "urn:listwright:schema-mismatch");
    assert.equal(error.title, "Conflict");
    assert.match(error.detail, /prise/);
    assert.deepEqual(error.errors.map((fault) => fault.path), ["$.feature_names"]);
    assert.equal(error.attempts, 1);
  });

  test("refuses another key", async () => {
    const error = await new Client(url, { apiKey: "x".repeat(20) }).info(PATIENCE).catch((refusal) => refusal);
    assert.ok(error instanceof RequestError);
    assert.equal(error.status, 401);
  });
});

describe("a script", () => {
  let server, base, script, sent;

  before(async () => {
    server = createServer(async (asked, answer) => {
      const chunks = [];
      for await (const chunk of asked) chunks.push(chunk);
      sent.push({ path: asked.url, headers: asked.headers, body: Buffer.concat(chunks).toString() });
      const step = script[Math.min(sent.length, script.length) - 1];
      if (typeof step === "function") return step(answer);
      const [status, body, headers = {}] = step;
      answer.writeHead(status, { "X-Request-ID": asked.headers["x-request-id"], ...headers });
      answer.end(typeof body === "string" ? body : JSON.stringify(body));
    });
    await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
    base = `http://127.0.0.1:${server.address().port}`;
  });

  after(() => {
    server.closeAllConnections();
    server.close();
  });

  /** Ask with the answers of a script, the last of which is repeated; return the value or the error. */
  function ask(steps, options = {}, body = request) {
    script = steps;
    sent = [];
    return new Client(`${base}/below/`, { apiKey: "secret", ...PATIENCE })
      .rerank(body, options)
      .catch((refusal) => refusal);
  }

  const problem = (kind, detail = "x") => ({ type: `urn:listwright:${kind}`, title: "T", status: 0, detail });

  for (const [name, step] of [
    ["a 503", [503, problem("not-ready"), { "Retry-After": "0" }]],
    ["a 429", [429, problem("overloaded"), { "Retry-After": "0" }]],
    ["a proxy's 502", [502, "<html>"]],
    ["a reset connection", (answer) => answer.destroy()],
    ["an answer cut off", (answer) => answer.writeHead(200, { "Content-Length": 100 }).write("{", () => answer.destroy())],
  ]) {
    test(`${name} is tried again, with the same id`, async () => {
      assert.deepEqual(await ask([step, [200, { ranks: [1] }]]), { ranks: [1] });
      assert.equal(sent.length, 2);
      assert.equal(sent[0].headers["x-request-id"], sent[1].headers["x-request-id"]);
      assert.deepEqual(sent.map(({ body }) => body), [JSON.stringify(request), JSON.stringify(request)]);
    });
  }

  for (const [name, kind, attempts, ...step] of [
    ["overloaded", OverloadedError, 3, 429, problem("overloaded"), { "Retry-After": "0" }],
    ["not ready", UnavailableError, 3, 503, problem("not-ready")],
    ["late", DeadlineExceededError, 1, 504, problem("degraded")],
    ["broken", ServerError, 1, 500, "<html>"],
    ["invalid", RequestError, 1, 422, { ...problem("invalid-request"), errors: [{ path: "$", message: "m" }] }],
    ["moved", UnexpectedAnswerError, 1, 307, "", { Location: "/elsewhere" }],
    ["no JSON", UnexpectedAnswerError, 1, 200, "<html>"],
    ["mixed up", UnexpectedAnswerError, 1, 200, {}, { "X-Request-ID": "another" }],
    ["mixed up refusals", UnexpectedAnswerError, 1, 422, problem("invalid-request"), { "X-Request-ID": "another" }],
    ["busy for longer than the call", OverloadedError, 1, 429, problem("overloaded"), { "Retry-After": "1000" }],
  ]) {
    test(`${name}: ${kind.name} after ${attempts}`, async () => {
      const error = await ask([step]);
      assert.equal(error.constructor, kind);
      assert.deepEqual([error.status, error.attempts, sent.length], [step[0], attempts, attempts]);
      if (typeof step[1] === "object" && kind !== UnexpectedAnswerError) {
        assert.deepEqual([error.type, error.title, error.detail], [step[1].type, "T", "x"]);
        assert.deepEqual(error.errors, step[1].errors ?? []);
        if (step[2]) assert.equal(error.retryAfter, Number(step[2]["Retry-After"]));
      }
    });
  }

  test("an id that a proxy added is no other answer", async () => {
    const step = (answer) => answer.setHeader("X-Request-ID", `proxy, ${sent.at(-1).headers["x-request-id"]}`).end("{}");
    assert.deepEqual(await ask([step]), {});
  });

  test("a date of Retry-After counts from the answer's own", async () => {
    const date = "Tue, 01 Jan 2030 00:00:00 GMT";
    const error = await ask([[503, "", { "Retry-After": "Tue, 01 Jan 2030 00:16:40 GMT", Date: date }]]);
    assert.equal(error.retryAfter, 1000);
  });

  test("a service that hangs costs the timeout", async () => {
    const error = await ask([() => undefined], { timeout: 50 });
    assert.equal(error.constructor, DeadlineExceededError);
    assert.deepEqual([error.status, error.attempts], [undefined, 1]);
  });

  test("the service hears of a deadline or a timeout_ms, and of what is left of it", async () => {
    const steps = [[503, problem("not-ready")], [200, {}]];
    await ask(steps, { deadline: performance.now() + 50_000 });
    const left = sent.map(({ body }) => JSON.parse(body).timeout_ms);
    assert.ok(50_000 > left[0] && left[0] > left[1] && left[1] > 0, left);
    await ask(steps, {}, { ...request, timeout_ms: 40_000 });
    const limits = sent.map(({ body }) => JSON.parse(body).timeout_ms);
    assert.ok(40_000 >= limits[0] && limits[0] > limits[1], limits);
    await ask([[200, {}]], { timeout: 50_000 });
    assert.equal(JSON.parse(sent[0].body).timeout_ms, undefined);
  });

  test("a deadline that has passed sends nothing", async () => {
    const error = await ask([[200, {}]], { deadline: performance.now() - 1 });
    assert.equal(error.constructor, DeadlineExceededError);
    assert.deepEqual([error.attempts, sent.length], [0, 0]);
  });

  test("the caller's signal ends a call, also between two attempts", async () => {
    for (const step of [() => undefined, [503, problem("not-ready"), { "Retry-After": "50" }]]) {
      const controller = new AbortController();
      const asked = ask([step], { signal: controller.signal });
      while (sent.length === 0) await new Promise((resolve) => setTimeout(resolve, 1));
      controller.abort("enough");
      assert.equal(await asked, "enough");
    }
    assert.equal(await ask([[200, {}]], { signal: AbortSignal.abort("before") }), "before");
  });

  test("an answer that is no object", async () => {
    for (const body of ["null", "3", '"text"', "{"]) {
      assert.equal((await ask([[200, body]])).constructor, UnexpectedAnswerError);
    }
  });

  test("an empty request with a limit is JSON, and blanks around the address are none of it", async () => {
    script = [[200, {}]];
    sent = [];
    await new Client(` ${base}/below/ `, PATIENCE).rerank({}, { deadline: performance.now() + 90_000 });
    assert.equal(sent[0].path, "/below/rerank");
    assert.deepEqual(Object.keys(JSON.parse(sent[0].body)), ["timeout_ms"]);
  });

  test("headers", async () => {
    await ask([[200, {}]], { requestId: "r-1", traceparent: "00-1-2-01" });
    const [{ path: asked, headers }] = sent;
    assert.equal(asked, "/below/rerank");
    assert.equal(headers.authorization, "Bearer secret");
    assert.deepEqual([headers["x-request-id"], headers.traceparent], ["r-1", "00-1-2-01"]);
  });

  test("what cannot be sent is refused before", async () => {
    const wrong = [
      [{}, { ...request, features: [[Infinity, 1]] }, RangeError],
      [{}, { ...request, features: [new Float32Array([1, 2])] }, TypeError],
      [{}, { ...request, timeout_ms: 0 }, RangeError],
      [{ timeout: -1 }, request, RangeError],
      [{ deadline: NaN }, request, RangeError],
      [{ timeout: 1, deadline: 1 }, request, TypeError],
      [{ requestId: "a b" }, request, TypeError],
    ];
    for (const [options, body, kind] of wrong) {
      assert.equal((await ask([[200, {}]], options, body)).constructor, kind);
      assert.equal(sent.length, 0);
    }
    for (const address of ["nowhere", "ftp://h", "http://u:p@h", "http://h?x=1", "http://h#x"]) {
      assert.throws(() => new Client(address), TypeError);
    }
    for (const options of [{ timeout: 0 }, { retries: -1 }, { retries: 0.5 }, { apiKey: "a b" }]) {
      assert.throws(() => new Client(base, options));
    }
  });

  test("nobody there: not ready, and a failed connection", async () => {
    const away = new Client("http://127.0.0.1:1", { retries: 0, ...PATIENCE });
    assert.equal(await away.ready(), false);
    assert.equal((await away.info().catch((refusal) => refusal)).constructor, ConnectionFailedError);
  });
});
