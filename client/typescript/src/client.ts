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
import type { ExplainRequest, ExplainResponse, Info, RerankRequest, RerankResponse } from "./types.js";

/** Milliseconds subtracted from the time that is sent to the service: the answer has to travel, too. */
const WAY_BACK = 2;
/** Bounds of the random pause before a retry, in milliseconds; they double from the first to the longest. */
const FIRST_PAUSE = 50;
const LONGEST_PAUSE = 2000;
/** The longest wait that a timer of JavaScript's has, in milliseconds. */
const LONGEST = 2 ** 31 - 1;
const PLAIN = /^[!-~]{1,128}$/;

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
    return this.#ask("/rerank", options, request);
  }

  /** Rank, and explain the place of one candidate, or of the first ones; takes seconds: give it a `timeout`. */
  explain(request: ExplainRequest, options: CallOptions = {}): Promise<ExplainResponse> {
    return this.#ask("/explain", options, request);
  }

  /** Return what is served: the bundle, its features, the limits. */
  info(options: CallOptions = {}): Promise<Info> {
    return this.#ask("/info", options);
  }

  /** Return whether the service is ready for traffic; false if it cannot be reached. One attempt. */
  async ready(options: CallOptions = {}): Promise<boolean> {
    try {
      await this.#ask("/readyz", options, undefined, 0);
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
    request?: RerankRequest | ExplainRequest,
    retries = this.#retries,
  ): Promise<T> {
    const { timeout_ms, ...members } = request ?? {};
    const { endsAt, answerBy } = this.#limits(options, timeout_ms ?? undefined);
    const { requestId, headers } = this.#headers(options);
    const body = request && JSON.stringify(members, finite);
    for (let attempts = 1; ; attempts++) {
      const now = performance.now();
      if (now >= answerBy) throw tooLate(requestId, attempts - 1);
      const init: RequestInit = { headers, redirect: "manual", signal: limit(endsAt - now, options.signal) };
      if (body !== undefined) {
        const left = Math.max(1, Math.ceil(answerBy - now));
        init.method = "POST";
        init.body = answerBy === endsAt ? body : JSON.stringify({ ...members, timeout_ms: left }, finite);
      }
      const outcome = await this.#send<T>(path, init, requestId, attempts, options.signal);
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
  ): Promise<{ value: T } | ListwrightError> {
    let answer: Response;
    let text: string;
    try {
      answer = await this.#fetch(this.#base + path, init);
      text = await answer.text();
    } catch (error) {
      signal?.throwIfAborted();
      if (init.signal?.aborted) return tooLate(requestId, attempts);
      const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
      const details = { detail: `no whole answer: ${cause}`, request_id: requestId };
      return new ConnectionFailedError(details, attempts, { cause: error });
    }
    if (answer.status !== 200) return errorOf(answer, text, requestId, attempts);
    if (!isTo(answer, requestId)) return misdirected(answer, requestId, attempts);
    const value = parsed(text);
    if (value === undefined) {
      const detail = `no JSON object: ${JSON.stringify(text.slice(0, 200))}`;
      return new UnexpectedAnswerError({ detail, status: 200, request_id: requestId }, attempts);
    }
    return { value: value as T };
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

/** Return the object of a JSON text; undefined if it is none. */
function parsed(text: string): object | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? value : undefined;
  } catch {
    return undefined;
  }
}

function tooLate(requestId: string, attempts: number): DeadlineExceededError {
  const detail = `the deadline passed before ${attempts ? "an answer came" : "anything was sent"}`;
  return new DeadlineExceededError({ detail, request_id: requestId }, attempts);
}

function positive(name: string, value: number): number {
  if (!(Number.isFinite(value) && value > 0)) throw new RangeError(`${name} is ${value}: give a positive number`);
  return value;
}

/** Refuse what `JSON.stringify` would change: infinite numbers to missing values, typed arrays to objects. */
function finite(name: string, value: unknown): unknown {
  if (ArrayBuffer.isView(value)) throw new TypeError(`${name} is a typed array: send Array.from of it`);
  if (value === Infinity || value === -Infinity) {
    throw new RangeError(`${name} holds ${value}: send a finite number, or null for a missing value`);
  }
  return value;
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
