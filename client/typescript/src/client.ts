import {
  ConnectionFailedError,
  DeadlineExceededError,
  errorOf,
  isTo,
  ListwrightError,
  misdirected,
  OverloadedError,
  UnavailableError,
  UnexpectedAnswerError,
} from "./errors.js";
import type { ExplainRequest, ExplainResponse, Info, PlacedCandidate } from "./types.js";
import type { RerankColumns, RerankMatrix, RerankRequest, RerankResponse, RerankRows } from "./types.js";

/** Milliseconds subtracted from the time that is sent to the service: the answer has to travel, too. */
const WAY_BACK = 2;
/** Bounds of the random pause before a retry, in milliseconds; they double from the first to the longest. */
const FIRST_PAUSE = 50;
const LONGEST_PAUSE = 2000;
/** The longest wait that a timer of JavaScript's has, in milliseconds. */
const LONGEST = 2 ** 31 - 1;
const PLAIN = /^[!-~]{1,128}$/;
/** Bytes that are read of an answer, those added for each candidate that was sent, and those of a refusal. */
const [MOST_BYTES, MOST_BYTES_OF_CANDIDATE, MOST_BYTES_OF_REFUSAL] = [8 * 2 ** 20, 2048, 2 ** 20];
/** Members in which NaN is a missing value; a null elsewhere would leave out a part of what was asked. */
const NULLABLE = /^(candidates|columns|context|features)\b/;

/** A request of any form. */
type Sent = Partial<RerankRows & RerankMatrix & RerankColumns>;

export interface ClientOptions {
  /** Sent as `Authorization: Bearer`. */
  apiKey?: string | undefined;
  /** Milliseconds that a call may take, retries and waits included; 5000 by default. */
  timeout?: number | undefined;
  /** Attempts after the first, where trying again is safe and there is time; 2 by default. */
  retries?: number | undefined;
  /** A `fetch` of your own, for proxies and certificates. */
  fetch?: typeof fetch | undefined;
}

export interface CallOptions {
  /** Milliseconds for the whole call, retries and waits included; default: the client's. Not sent to the service. */
  timeout?: number | undefined;
  /** Instead of a timeout: the moment, by `performance.now()`, at which the call ends. Sent to the service. */
  deadline?: number | undefined;
  /** `X-Request-ID`; by default a new one. All attempts carry the same. */
  requestId?: string | undefined;
  /** W3C Trace Context. */
  traceparent?: string | undefined;
  /** Ends the call at once, with the signal's reason. */
  signal?: AbortSignal | undefined;
}

/** Client of one service. Calls may run at the same time. */
export class Client {
  readonly #base: string;
  readonly #key: string | undefined;
  readonly #timeout: number;
  readonly #retries: number;
  readonly #fetch: typeof fetch;

  /**
   * @param baseUrl of the service, such as `http://127.0.0.1:8000`; a path before `/rerank` is kept.
   * @throws TypeError, RangeError if the address, the key or a number cannot be used.
   */
  constructor(baseUrl: string, options: ClientOptions = {}) {
    const url = new URL(baseUrl);
    if (!/^https?:$/.test(url.protocol) || url.username || url.password || /[?#]/.test(baseUrl)) {
      throw new TypeError("baseUrl: give an address like http://127.0.0.1:8000, without user, query and fragment");
    }
    if (options.apiKey !== undefined && !/^[!-~]+$/.test(options.apiKey)) {
      throw new TypeError("apiKey holds blanks or characters that no header may have");
    }
    this.#base = url.href.replace(/\/+$/, "");
    this.#key = options.apiKey;
    this.#timeout = positive("timeout", options.timeout ?? 5000);
    this.#retries = options.retries ?? 2;
    if (!Number.isInteger(this.#retries) || this.#retries < 0) {
      throw new RangeError(`retries is ${this.#retries}: give a whole number, 0 or more`);
    }
    this.#fetch = options.fetch ?? ((input, init) => fetch(input, init));
  }

  /**
   * Rank the candidates of one query.
   *
   * @param request as in `POST /rerank`; NaN is a missing value. `timeout_ms` limits the service: attempts share it.
   * @throws ListwrightError if there is no good answer; TypeError, RangeError for what cannot be sent.
   */
  rerank(request: RerankRequest, options: CallOptions = {}): Promise<RerankResponse> {
    return this.#ask("/rerank", options, (answer: RerankResponse) => checkRanking(answer, request), request);
  }

  /** Rank, and explain the place of one candidate, or of the first ones; takes seconds: give it a `timeout`. */
  explain(request: ExplainRequest, options: CallOptions = {}): Promise<ExplainResponse> {
    return this.#ask("/explain", options, (answer: ExplainResponse) => checkExplained(answer, request), request);
  }

  /** Return what is served: the bundle, its features, the limits. */
  info(options: CallOptions = {}): Promise<Info> {
    return this.#ask("/info", options, checkInfo);
  }

  /** Return whether the service is ready for traffic; false if it cannot be reached. One attempt. */
  async ready(options: CallOptions = {}): Promise<boolean> {
    try {
      await this.#ask("/readyz", options, () => undefined, undefined, 0);
      return true;
    } catch (error) {
      const kinds = [ConnectionFailedError, DeadlineExceededError, UnavailableError];
      if (kinds.some((kind) => error instanceof kind)) return false;
      throw error;
    }
  }

  async #ask<T>(
    path: string,
    options: CallOptions,
    check: (answer: T) => void,
    request?: RerankRequest | ExplainRequest,
    retries = this.#retries,
  ): Promise<T> {
    const { timeout_ms, ...members } = request ?? {};
    const { endsAt, answerBy } = this.#limits(options, timeout_ms ?? undefined);
    const { requestId, headers } = this.#headers(options);
    if (request) refuse(request, "");
    const length = request ? lengthOf(request) : 0;
    if (length > 0) headers["Listwright-Expect-Candidates"] = `${length}`; // services that do not know it ignore it
    const body = request && JSON.stringify(members);
    const most = MOST_BYTES + MOST_BYTES_OF_CANDIDATE * length;
    for (let attempts = 1; ; attempts++) {
      const now = performance.now();
      if (now >= answerBy) throw tooLate(requestId, attempts - 1);
      const init: RequestInit = { headers, redirect: "manual", signal: limit(endsAt - now, options.signal) };
      if (body !== undefined) {
        const left = Math.max(1, Math.ceil(answerBy - now));
        init.method = "POST";
        const limits = `{"timeout_ms":${left}${body === "{}" ? "" : ","}`;
        init.body = answerBy === endsAt ? body : limits + body.slice(1);
      }
      const outcome = await this.#send(path, init, requestId, attempts, options.signal, most, check);
      if (!(outcome instanceof ListwrightError)) return outcome.value;
      if (!isPassing(outcome) || attempts > retries) throw outcome;
      const longest = Math.min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (attempts - 1));
      const pause = (outcome.retryAfter ?? 0) * 1000 + Math.random() * longest;
      if (performance.now() + pause >= answerBy) throw outcome;
      await sleep(pause, options.signal);
    }
  }

  /** Send a request once; return the value of its answer, or why there is none. */
  async #send<T>(
    path: string,
    init: RequestInit,
    requestId: string,
    attempts: number,
    signal: AbortSignal | undefined,
    most: number,
    check: (answer: T) => void,
  ): Promise<{ value: T } | ListwrightError> {
    let answer: Response;
    let text: string | undefined;
    try {
      answer = await this.#fetch(this.#base + path, init);
      text = await read(answer, answer.status === 200 ? most : MOST_BYTES_OF_REFUSAL);
    } catch (error) {
      signal?.throwIfAborted();
      if (init.signal?.aborted) return tooLate(requestId, attempts);
      const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
      const details = { detail: `no whole answer: ${cause}`, request_id: requestId };
      return new ConnectionFailedError(details, attempts, { cause: error });
    }
    if (answer.status !== 200) return errorOf(answer, text ?? "", requestId, attempts);
    if (!isTo(answer, requestId)) return misdirected(answer, requestId, attempts);
    try {
      demand(text !== undefined, `it has more than ${most} bytes`);
      const value: unknown = JSON.parse(text);
      demand(typeof value === "object" && value !== null, "it is no JSON object");
      check(value as T);
      return { value: value as T };
    } catch (error) {
      const detail = `not an answer to this question, ${error}; it starts ${JSON.stringify(text?.slice(0, 200))}`;
      return new UnexpectedAnswerError({ detail, status: 200, request_id: requestId }, attempts, { cause: error });
    }
  }

  /** Return when a call ends, and when the service should have answered: the same moment unless a limit is sent. */
  #limits(options: CallOptions, timeoutMs: number | undefined): { endsAt: number; answerBy: number } {
    if (options.timeout !== undefined && options.deadline !== undefined) {
      throw new TypeError("give a timeout or a deadline: both say when the call ends");
    }
    const now = performance.now();
    const timeout = positive("timeout", options.timeout ?? this.#timeout);
    const endsAt = options.deadline ?? now + timeout;
    if (!Number.isFinite(endsAt)) {
      throw new RangeError(`deadline is ${endsAt}: give a moment of performance.now()`);
    }
    if (options.deadline === undefined && timeoutMs === undefined) return { endsAt, answerBy: endsAt };
    const wanted = timeoutMs === undefined ? Infinity : now + positive("timeout_ms", timeoutMs);
    return { endsAt, answerBy: Math.min(wanted, endsAt - WAY_BACK) };
  }

  #headers(options: CallOptions): { requestId: string; headers: Record<string, string> } {
    const requestId = options.requestId ?? crypto.randomUUID();
    const { traceparent } = options;
    for (const [name, value] of Object.entries({ requestId, traceparent })) {
      if (value !== undefined && !PLAIN.test(value)) {
        throw new TypeError(`${name} is ${JSON.stringify(value)}: give 1 to 128 printable ASCII characters, no blanks`);
      }
    }
    const headers: Record<string, string> = {
      Accept: "application/json, application/problem+json",
      "Content-Type": "application/json",
      "X-Request-ID": requestId,
    };
    if (this.#key !== undefined) headers["Authorization"] = `Bearer ${this.#key}`;
    if (traceparent !== undefined) headers["traceparent"] = traceparent;
    return { requestId, headers };
  }
}

/** Return whether the same question may get an answer later: ranking changes nothing, so asking twice is safe. */
function isPassing(error: ListwrightError): boolean {
  const kinds = [OverloadedError, UnavailableError, ConnectionFailedError];
  return error.status === 502 || kinds.some((kind) => error instanceof kind);
}

/** Return the text of an answer; undefined if it has more bytes than so many, which are not read. */
async function read(answer: Response, most: number): Promise<string | undefined> {
  const decoder = new TextDecoder();
  let text = "";
  let size = 0;
  for await (const piece of answer.body ?? []) {
    size += piece.length;
    if (size > most) return undefined;
    text += decoder.decode(piece, { stream: true });
  }
  return text + decoder.decode();
}

function demand(holds: boolean, otherwise: string): asserts holds {
  if (!holds) throw new Error(otherwise);
}

/** Return the number of candidates of a request. */
function lengthOf(request: Sent): number {
  return (request.candidates ?? request.features ?? Object.values(request.columns ?? {})[0] ?? []).length;
}

/** Throw unless a candidate in an answer is one that was sent, by position and id. */
function checkCandidate({ index, id }: Omit<PlacedCandidate, "rank">, request: Sent): void {
  const known = Number.isInteger(index) && index >= 0 && index < lengthOf(request);
  demand(known, `it has a candidate ${index}, and ${lengthOf(request)} were sent`);
  const sent = (request.candidates ? request.candidates[index]?.id : request.ids?.[index]) ?? null;
  demand(id === sent, `its candidate ${index} has the id ${JSON.stringify(id)}, and ${JSON.stringify(sent)} was sent`);
}

/** Throw unless an answer is the ranking of a request's candidates. */
function checkRanking(answer: RerankResponse, request: Sent): void {
  const { scores, ranks, probabilities, results } = answer;
  demand(answer.id === (request.id ?? null), `it has the id ${JSON.stringify(answer.id)}`);
  demand(typeof answer.model === "string" && typeof answer.version === "string", "it names no model and version");
  demand((request.version ?? answer.version) === answer.version, `it is of version ${answer.version}`);
  demand(["ok", "degraded"].includes(answer.meta.status), `its status is ${answer.meta.status}`);
  demand(typeof answer.route.strategy === "string", "it names no strategy");
  for (const [name, values] of Object.entries({ scores, ranks, probabilities: probabilities ?? ranks })) {
    demand(Array.isArray(values) && values.length === lengthOf(request), `its ${name} are not one per candidate`);
    demand(values.every((value) => value === null || Number.isFinite(value)), `one of its ${name} is no number`);
  }
  const order = [...ranks.keys()].filter((index) => ranks[index] !== null);
  order.sort((one, other) => Number(ranks[one]) - Number(ranks[other]));
  demand(order.every((index, at) => ranks[index] === at + 1), `its ranks are not 1 to ${order.length}, each once`);
  const due = Math.min(order.length, request.top_n ?? order.length);
  demand(Array.isArray(results) && results.length === due, `${due} results are due`);
  for (const [at, result] of results.entries()) {
    checkCandidate(result, request);
    demand(result.index === order[at] && result.rank === at + 1, `its result ${at} is another candidate`);
    demand(result.relevance_score === null || Number.isFinite(result.relevance_score), `result ${at} has no score`);
  }
  const ranked = order.flatMap((index) => scores[index] ?? []);
  const sorted = ranked.every((score, at) => at === 0 || score <= Number(ranked[at - 1]));
  demand(sorted || answer.meta.experiment != null, "its ranks contradict its scores");
}

/** Throw unless an answer explains the candidates that were asked for. */
function checkExplained(answer: ExplainResponse, request: Sent & ExplainRequest): void {
  checkRanking(answer.ranking, request);
  const most = request.explain_top_n ?? 1;
  const { explanations } = answer;
  demand(Array.isArray(explanations) && explanations.length > 0 && explanations.length <= most, "its explanations");
  for (const [at, { candidate, against, passing, moves, rules }] of explanations.entries()) {
    for (const part of [candidate, against, passing?.above, ...moves]) if (part) checkCandidate(part, request);
    const rank = answer.ranking.ranks[candidate.index];
    demand((rules ? rules.rank : candidate.rank) === rank, `candidate ${candidate.index} has another rank`);
    demand(request.explain_top_n == null || rank === at + 1, `it explains rank ${rank} as number ${at + 1}`);
    for (const [part, name] of [[candidate, request.candidate], [against, request.against]] as const) {
      const own = typeof name === "string" ? part?.id : part?.index;
      demand(name == null || own === name, `it is about ${JSON.stringify(own)}, not ${JSON.stringify(name)}`);
    }
  }
}

/** Throw unless an answer says what is served. */
function checkInfo({ model, version, features, limits, strategies }: Info): void {
  const texts = [model, version, ...strategies, ...features.map((feature) => feature.name)];
  demand(texts.every((text) => typeof text === "string"), "a name is no text");
  demand(Number.isInteger(limits.max_candidates) && Number.isInteger(limits.max_payload_bytes), "its limits");
}

function tooLate(requestId: string, attempts: number): DeadlineExceededError {
  const detail = `the deadline passed before ${attempts ? "an answer came" : "anything was sent"}`;
  return new DeadlineExceededError({ detail, request_id: requestId }, attempts);
}

function positive(name: string, value: number): number {
  if (!(Number.isFinite(value) && value > 0)) throw new RangeError(`${name} is ${value}: give a positive number`);
  return value;
}

/** Refuse what `JSON.stringify` would leave out or change: all but JSON's own values; undefined is an absent member. */
function refuse(value: unknown, place: string): void {
  if (value === null || typeof value === "string" || typeof value === "boolean") return;
  if (typeof value === "number") {
    if (Number.isFinite(value) || (Number.isNaN(value) && NULLABLE.test(place))) return;
    throw new RangeError(`${place} is ${value}: send a finite number, or null for a missing value`);
  }
  const kind = Object.getPrototypeOf(value ?? 0);
  const plain = typeof value === "object" && (Array.isArray(value) || !kind || Object.getPrototypeOf(kind) === null);
  if (!plain || "toJSON" in value || Object.getOwnPropertySymbols(value).length > 0) {
    const name = typeof value === "object" ? kind?.constructor?.name : typeof value;
    throw new TypeError(`${place || "the request"} is a ${name}: send JSON's values, arrays and plain objects`);
  }
  if (Array.isArray(value)) {
    for (let at = 0; at < value.length; at++) if (!Number.isFinite(value[at])) refuse(value[at], `${place}[${at}]`);
  } else {
    for (const [name, inner] of Object.entries(value as object)) {
      if (place || inner !== undefined) refuse(inner, place ? `${place}.${name}` : name);
    }
  }
}

/** Return a signal that is aborted after so many milliseconds, or with the caller's own. */
function limit(milliseconds: number, signal: AbortSignal | undefined): AbortSignal {
  const timer = AbortSignal.timeout(Math.min(Math.ceil(milliseconds), LONGEST));
  return signal === undefined ? timer : AbortSignal.any([timer, signal]);
}

function sleep(milliseconds: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const timer = setTimeout(end, Math.min(milliseconds, LONGEST));
    function end(): void {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      if (signal?.aborted) reject(signal.reason);
      else resolve();
    }
    signal?.addEventListener("abort", end);
  });
}
