import type { Fault, Problem } from "./types.js";

/** Details of an error: the members of an RFC 9457 body, or as much as there was. */
export interface Details extends Partial<Omit<Problem, "status" | "detail">> {
  detail: string;
  /** HTTP status; undefined if no answer came. */
  status?: number | undefined;
  /** Seconds that the service asked to wait. */
  retryAfter?: number | undefined;
}

/** A question that got no good answer. */
export class ListwrightError extends Error {
  /** HTTP status; undefined if no answer came. */
  readonly status: number | undefined;
  /** Stable name of the problem, such as `urn:listwright:schema-mismatch`; undefined if the service did not answer. */
  readonly type: string | undefined;
  readonly title: string | undefined;
  readonly detail: string;
  /** Every fault of the request with its JSON path. */
  readonly errors: Fault[];
  /** Id of the request in the service's log. */
  readonly requestId: string | undefined;
  /** Seconds that the service asked to wait; undefined if it did not. */
  readonly retryAfter: number | undefined;

  constructor(
    details: Details,
    /** How often the question was sent. */
    readonly attempts: number,
    options?: ErrorOptions,
  ) {
    const head = [details.status, details.type].filter((part) => part !== undefined).join(" ");
    const tail = `${attempts} attempt${attempts === 1 ? "" : "s"}, request ${details.request_id}`;
    super(printable(`${head}${head && ": "}${details.detail} (${tail})`), options);
    this.name = new.target.name;
    this.status = details.status;
    this.type = details.type;
    this.title = details.title;
    this.detail = printable(details.detail);
    this.errors = details.errors ?? [];
    this.requestId = details.request_id && printable(details.request_id);
    this.retryAfter = details.retryAfter;
  }
}

/** 4xx: the request is invalid; `type`, `detail` and `errors` say why. */
export class RequestError extends ListwrightError {}

/** 429: more requests than the service can answer in time, or than the key may send. */
export class OverloadedError extends ListwrightError {}

/** 503: no bundle is loaded, or the service is stopping. */
export class UnavailableError extends ListwrightError {}

/** 504, or the limit of the call passed; then `status` is undefined. */
export class DeadlineExceededError extends ListwrightError {}

/** Any other 5xx, also a proxy's. */
export class ServerError extends ListwrightError {}

/** An answer outside the contract, or to another request. */
export class UnexpectedAnswerError extends ListwrightError {}

/** No whole answer: unknown host, refused, reset, cut off. */
export class ConnectionFailedError extends ListwrightError {}

const SHOWN = 200;
const OF_ANY_REQUEST = ["overloaded", "rate-limited", "too-many-connections", "malformed-http"].map(
  (kind) => `urn:listwright:${kind}`,
);

/** Return the error for an answer that is not 200. */
export function errorOf(answer: Response, text: string, requestId: string, attempts: number): ListwrightError {
  const problem = problemOf(text);
  if (problem.type !== undefined && !OF_ANY_REQUEST.includes(problem.type) && !isTo(answer, requestId)) {
    return misdirected(answer, requestId, attempts);
  }
  const location = answer.headers.get("location");
  const redirect = location === null ? "" : `redirects to ${location.slice(0, SHOWN)}, `;
  const details: Details = {
    detail: `${redirect}the answer starts ${JSON.stringify(text.slice(0, SHOWN))}`,
    request_id: answer.headers.get("x-request-id") ?? requestId,
    retryAfter: secondsToWait(answer.headers),
    ...problem,
    status: answer.status,
  };
  return new (classOf(answer.status))(details, attempts);
}

/** Return the error for an answer to another request. */
export function misdirected(answer: Response, requestId: string, attempts: number): ListwrightError {
  const detail =
    `the answer is to request ${answer.headers.get("x-request-id")}, not to this one: does a proxy mix up answers, ` +
    "or replace X-Request-ID? Envoy keeps it with preserve_external_request_id";
  return new UnexpectedAnswerError({ detail, status: answer.status, request_id: requestId }, attempts);
}

/** Return whether an answer is to a request; true where a proxy dropped the header, or added another id. */
export function isTo(answer: Response, requestId: string): boolean {
  const ids = answer.headers.get("x-request-id");
  return ids === null || ids.split(",").some((id) => id.trim() === requestId);
}

function classOf(status: number): typeof ListwrightError {
  if (status === 429) return OverloadedError;
  if (status === 503) return UnavailableError;
  if (status === 504) return DeadlineExceededError;
  if (status >= 400 && status < 500) return RequestError;
  return status >= 500 && status < 600 ? ServerError : UnexpectedAnswerError;
}

/** Return a text that a terminal shows as it is: what moves its cursor or changes its letters is escaped. */
function printable(text: string): string {
  return text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (letter) => `\\u{${letter.codePointAt(0)?.toString(16)}}`);
}

/** Return the members of a problem body, printable; none if the answer is not the service's own. */
function problemOf(text: string): Partial<Problem> {
  try {
    const body = JSON.parse(text, (_, value) => (typeof value === "string" ? printable(value) : value));
    if (typeof body?.type !== "string" || typeof body.detail !== "string") return {};
    const { type, title, detail, request_id, errors } = body;
    const faults = Array.isArray(errors) ? errors.filter((fault) => fault && typeof fault === "object") : [];
    return {
      type,
      detail,
      errors: faults.map(({ path, message }) => ({ path: String(path), message: String(message) })),
      ...(typeof title === "string" && { title }),
      ...(typeof request_id === "string" && { request_id }),
    };
  } catch {
    return {};
  }
}

/** Return the seconds of `Retry-After`; a date counts from the answer's own, as clocks of two machines differ. */
function secondsToWait(headers: Headers): number | undefined {
  const value = headers.get("retry-after")?.trim();
  if (value === undefined) return undefined;
  if (/^\d+(\.\d+)?$/.test(value)) return Number(value);
  const now = Date.parse(headers.get("date") ?? "");
  const seconds = (Date.parse(value) - (Number.isNaN(now) ? Date.now() : now)) / 1000;
  return Number.isNaN(seconds) ? undefined : Math.max(0, seconds);
}
