import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { PassThrough } from "node:stream";
import { after, before, describe, test } from "node:test";
import { createGzip } from "node:zlib";
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

/** A good answer to a list of so many candidates, which keeps the input order. */
function answerOf(length, ids) {
  const at = [...Array(length).keys()];
  const stages = { stage: "second", first_stage_score: 0.5 };
  const result = (index) => ({ index, id: ids?.[index] ?? null, rank: index + 1, relevance_score: 1 / length, ...stages });
  const route = { strategy: "qilcm", specialist: null, confidence: null, decided_by: "bundle" };
  const meta = { status: "ok", stage_reached: "second_stage", reason: null, timings_ms: { total: 1 } };
  const lists = { scores: at.map(() => 1 / length), ranks: at.map((index) => index + 1) };
  return { id: null, model: "shop", version: "7", results: at.map(result), ...lists, route, meta };
}
const GOOD = answerOf(1);

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

  test("refuses a list that was cut on its way", async () => {
    const cut = (path, { body, ...init }) => fetch(path, { ...init, body: body.replace(/,\[[^[]*\]\]/, "]") });
    const error = await new Client(url, { apiKey, fetch: cut, ...PATIENCE })
      .rerank({ features: lists[0] })
      .catch((refusal) => refusal);
    assert.equal(error.type, "urn:listwright:candidate");
    assert.match(error.detail, new RegExp(`is ${lists[0].length}, and ${lists[0].length - 1} arrived`));
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
      assert.deepEqual(await ask([step, [200, GOOD]]), GOOD);
      assert.equal(sent.length, 2);
      assert.equal(sent[0].headers["x-request-id"], sent[1].headers["x-request-id"]);
      assert.deepEqual(sent.map(({ body }) => body), [JSON.stringify(request), JSON.stringify(request)]);
      assert.deepEqual(sent.map(({ headers }) => headers["listwright-expect-candidates"]), ["1", "1"]);
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
    const step = (answer) => answer.setHeader("X-Request-ID", `proxy, ${sent.at(-1).headers["x-request-id"]}`).end(JSON.stringify(GOOD));
    assert.deepEqual(await ask([step]), GOOD);
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
    const steps = [[503, problem("not-ready")], [200, GOOD]];
    await ask(steps, { deadline: performance.now() + 50_000 });
    const left = sent.map(({ body }) => JSON.parse(body).timeout_ms);
    assert.ok(50_000 > left[0] && left[0] > left[1] && left[1] > 0, left);
    await ask(steps, {}, { ...request, timeout_ms: 40_000 });
    const limits = sent.map(({ body }) => JSON.parse(body).timeout_ms);
    assert.ok(40_000 >= limits[0] && limits[0] > limits[1], limits);
    await ask([[200, GOOD]], { timeout: 50_000 });
    assert.equal(JSON.parse(sent[0].body).timeout_ms, undefined);
  });

  test("a deadline that has passed sends nothing", async () => {
    const error = await ask([[200, GOOD]], { deadline: performance.now() - 1 });
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
    assert.equal(await ask([[200, GOOD]], { signal: AbortSignal.abort("before") }), "before");
  });

  test("an answer that is no object", async () => {
    for (const body of ["null", "3", '"text"', "{"]) {
      assert.equal((await ask([[200, body]])).constructor, UnexpectedAnswerError);
    }
  });

  test("an empty request with a limit is JSON, and blanks around the address are none of it", async () => {
    script = [[200, GOOD]];
    sent = [];
    const asked = new Client(` ${base}/below/ `, PATIENCE).rerank({}, { deadline: performance.now() + 90_000 });
    assert.equal((await asked.catch((refusal) => refusal)).constructor, UnexpectedAnswerError);
    assert.equal(sent[0].path, "/below/rerank");
    assert.deepEqual(Object.keys(JSON.parse(sent[0].body)), ["timeout_ms"]);
  });

  test("headers", async () => {
    await ask([[200, GOOD]], { requestId: "r-1", traceparent: "00-1-2-01" });
    const [{ path: asked, headers }] = sent;
    assert.equal(asked, "/below/rerank");
    assert.equal(headers.authorization, "Bearer secret");
    assert.deepEqual([headers["x-request-id"], headers.traceparent], ["r-1", "00-1-2-01"]);
  });

  class Offer {
    price = 1;
  }
  const holes = [1, 2];
  delete holes[0];
  for (const [name, value] of Object.entries({
    map: new Map([["a", 1]]), set: new Set([1]), date: new Date(0), lambda: () => 1, symbol: Symbol("s"), big: 1n,
    undefined, number: new Number(1), string: new String("a"), boolean: new Boolean(true), typed: new Float64Array(1),
    buffer: Buffer.from("a"), url: new URL("http://a"), offer: new Offer(), toJSON: { toJSON: () => 1 }, holes,
    key: { [Symbol("s")]: 1 }, regexp: /a/, error: new Error("a"), promise: Promise.resolve(1), weak: new WeakMap(),
    inherited: Object.create({ price: 1 }), infinite: -Infinity,
  })) {
    test(`JSON would leave out or change this: ${name}`, async () => {
      for (const changes of [
        { context: { a: value } }, { features: [[value, 1]] }, { features: [value] },
        { features: undefined, candidates: [{ features: { a: value } }] },
        { features: undefined, candidates: [{ id: value, features: { a: 1 } }] },
        { features: undefined, columns: { a: [value] } }, { ids: [value] }, { feature_names: [value] },
        { rules: [{ action: "exclude", where: { a: value } }] }, { rules: [value] }, { rules: [{ factor: value }] },
      ]) {
        const error = await ask([[200, GOOD]], {}, { ...request, ...changes });
        assert.ok(error.constructor === TypeError || error.constructor === RangeError, `${Object.keys(changes)}: ${error}`);
        assert.equal(sent.length, 0);
      }
    });
  }

  test("NaN is a missing value of a feature or of the context, and of nothing else", async () => {
    const body = { ...request, features: [[NaN, 1]], context: { a: NaN }, top_n: undefined };
    assert.deepEqual(await ask([[200, GOOD]], {}, body), GOOD);
    const missing = { features: [[null, 1]], feature_names: request.feature_names, context: { a: null } };
    assert.deepEqual(JSON.parse(sent[0].body), missing);
    for (const changes of [{ top_n: NaN }, { rules: [{ action: "boost", where: { a: { max: NaN } } }] }]) {
      assert.equal((await ask([[200, GOOD]], {}, { ...request, ...changes })).constructor, RangeError);
    }
    const bare = Object.assign(Object.create(null), { a: 1 });
    assert.deepEqual(await ask([[200, GOOD]], {}, { ...request, context: bare }), GOOD);
  });

  const two = answerOf(2, ["a", "b"]);
  const pair = { features: [[1], [2]], ids: ["a", "b"] };
  const [first, second] = two.results;
  for (const [name, changes, question = {}] of [
    ["results that are a number", { results: 5 }],
    ["results that are an object", { results: { length: 2 } }],
    ["an index out of the list", { results: [{ ...first, index: 999 }, second] }],
    ["an index that is no whole number", { results: [{ ...first, index: 0.5 }, second] }],
    ["an index that is text", { results: [{ ...first, index: "0" }, second] }],
    ["a negative index", { results: [{ ...first, index: -1 }, second] }],
    ["an index twice", { results: [first, { ...first, rank: 2 }] }],
    ["another id", { results: [{ ...first, id: "c" }, second] }],
    ["ids that changed places", { results: [{ ...first, id: "b" }, { ...second, id: "a" }] }],
    ["too few results", { results: [first] }],
    ["too many results", {}, { top_n: 1 }],
    ["too few scores", { scores: [0.5] }],
    ["too many ranks", { ranks: [1, 2, 3] }],
    ["too few probabilities", { probabilities: [0.5] }],
    ["probabilities that are text", { probabilities: ["0.5", "0.5"] }],
    ["scores that are text", { scores: ["0.5", "0.5"] }],
    ["a rank twice", { ranks: [1, 1] }],
    ["a rank of 0", { ranks: [0, 1] }],
    ["ranks that are no whole numbers", { ranks: [1, 1.5] }],
    ["ranks against the scores", { scores: [0.1, 0.9] }],
    ["a result without a score", { results: [{ ...first, relevance_score: "1" }, second] }],
    ["another query", { id: "q" }],
    ["another version", {}, { version: "8" }],
    ["another status", { meta: { status: "fine" } }],
    ["no meta", { meta: null }],
    ["no model", { model: 3 }],
    ["results of nothing", { results: [null, null] }],
  ]) {
    test(`no answer: ${name}`, async () => {
      const error = await ask([[200, { ...two, ...changes }]], {}, { ...pair, ...question });
      assert.equal(error.constructor, UnexpectedAnswerError, String(error));
      assert.deepEqual([error.status, sent.length], [200, 1]);
      assert.deepEqual(await ask([[200, two]], {}, pair), two);
    });
  }

  test("probabilities and weights go there and come back", async () => {
    const results = [{ ...first, probability: 0.75 }, { ...second, probability: null }];
    const meta = { ...two.meta, weights: { booked: 1, margin: 0.5 } };
    const calibrated = { ...two, results, probabilities: [0.75, null], meta };
    const options = { probabilities: true, min_probability: 0.1, weights: { margin: 0.5 } };
    assert.deepEqual(await ask([[200, calibrated]], {}, { ...pair, ...options }), calibrated);
    assert.deepEqual(JSON.parse(sent[0].body), { ...pair, ...options });
    assert.equal((await ask([[200, two]], {}, { ...pair, weights: { margin: NaN } })).constructor, RangeError);
  });

  test("a list with an excluded candidate, with top_n, as rows and as columns is an answer", async () => {
    const without = { ...two, ranks: [null, 1], results: [{ ...second, rank: 1 }] };
    assert.deepEqual(await ask([[200, without]], {}, pair), without);
    const best = { ...two, results: [first] };
    assert.deepEqual(await ask([[200, best]], {}, { ...pair, top_n: 1 }), best);
    const candidates = ["a", "b"].map((id) => ({ id, features: { price: 1 } }));
    assert.deepEqual(await ask([[200, two]], {}, { candidates }), two);
    assert.deepEqual(await ask([[200, two]], {}, { columns: { price: [1, 2] }, ids: ["a", "b"] }), two);
  });

  test("explanations and what is served are checked, too", async () => {
    const candidate = { index: 1, id: "b", rank: 2 };
    const parts = { passing: null, moves: [], against: null, incomplete: [], faults: {} };
    const answer = (changes) => ({ ranking: two, explanations: [{ candidate, ...parts, ...changes }], meta: {} });
    const client = () => new Client(base, PATIENCE);
    const explain = (body) => {
      script = [[200, body]];
      sent = [];
      return client().explain({ ...pair, candidate: "b" }).catch((refusal) => refusal);
    };
    assert.deepEqual(await explain(answer({})), answer({}));
    for (const body of [
      { ...answer({}), explanations: 5 }, { ...answer({}), explanations: [] }, { ...answer({}), ranking: {} },
      answer({ candidate: { index: 0, id: "a", rank: 1 } }), answer({ candidate: { ...candidate, rank: 1 } }),
      answer({ moves: [{ index: 9, id: "b" }] }), answer({ passing: { above: { index: 0, id: "c", rank: 1 } } }),
    ]) {
      assert.equal((await explain(body)).constructor, UnexpectedAnswerError);
    }
    const info = { model: "m", version: "1", strategies: ["auto"], features: [{ name: "a" }] };
    const limits = { max_candidates: 1, max_payload_bytes: 1 };
    const ask = (body) => {
      script = [[200, body]];
      sent = [];
      return client().info().catch((refusal) => refusal);
    };
    assert.deepEqual(await ask({ ...info, limits }), { ...info, limits });
    for (const body of [info, { ...info, limits, features: 5 }, { ...info, limits, features: [{ name: 3 }] }, []]) {
      assert.equal((await ask(body)).constructor, UnexpectedAnswerError);
    }
  });

  test("control characters of a server do not reach a terminal", async () => {
    const hostile = "\u001b[2J\u202e\u0007\r\n\u2028x";
    const wrong = { errors: [{ path: hostile, message: hostile }], request_id: hostile, title: hostile };
    const error = await ask([[422, { ...problem("invalid-request", hostile), ...wrong }]]);
    assert.equal(error.constructor, RequestError);
    const texts = [error.message, error.detail, error.title, error.requestId, String(error), ...Object.values(error.errors[0])];
    for (const text of texts) assert.match(text, /^[ -~]*\\u\{1b\}\[2J\\u\{202e\}[ -~]*$/);
    const page = await ask([[500, hostile, { Location: "\u00ad" }]]);
    assert.match(page.message, /^[ -~]*$/);
    for (const errors of [5, [null, 3], { length: 1 }]) {
      assert.deepEqual((await ask([[422, { ...problem("invalid-request"), errors }]])).errors, []);
    }
  });

  test("an answer without end is read up to a bound, whatever it is compressed with", async () => {
    const most = 8 * 2 ** 20 + 2048;
    const spaces = (length) => JSON.stringify(GOOD) + " ".repeat(length - JSON.stringify(GOOD).length);
    assert.deepEqual(await ask([[200, spaces(most)]]), GOOD);
    assert.match((await ask([[200, spaces(most + 1)]])).detail, /more than 8390656 bytes/);
    let written = 0;
    const endless = (answer, status, headers) => {
      answer.writeHead(status, headers);
      const zip = headers["Content-Encoding"] ? createGzip() : new PassThrough();
      zip.pipe(answer);
      const piece = Buffer.alloc(2 ** 20, " ");
      const write = () => {
        while (!answer.destroyed && ++written && zip.write(piece));
        if (!answer.destroyed) zip.once("drain", write);
      };
      answer.on("close", () => zip.destroy());
      write();
    };
    for (const [status, headers, kind] of [
      [200, {}, UnexpectedAnswerError], [200, { "Content-Encoding": "gzip" }, UnexpectedAnswerError],
      [500, {}, ServerError], [422, { "Content-Encoding": "gzip" }, RequestError],
    ]) {
      assert.equal((await ask([(answer) => endless(answer, status, headers)])).constructor, kind);
    }
  });

  test("a head or a body that drips costs the timeout", async () => {
    for (const start of ["HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"]) {
      const drip = (answer) => {
        answer.socket.write(start);
        const timer = setInterval(() => answer.socket.write(start.endsWith("\r\n\r\n") ? " " : "X-More: 1\r\n"), 10);
        answer.socket.on("close", () => clearInterval(timer)).on("error", () => undefined);
      };
      const error = await ask([drip], { timeout: 200 });
      assert.equal(error.constructor, DeadlineExceededError);
    }
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
      assert.equal((await ask([[200, GOOD]], options, body)).constructor, kind);
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
