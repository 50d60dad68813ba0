/**
 * What the page asks the service. Addresses are relative to the page, so that it works below any prefix of a proxy.
 * Each function returns the answer, or throws a {@link ServiceError}.
 */

const BASE = new URL("../", document.baseURI);
const STORED = "listwright-key";

/** Seconds until an answer is given up. */
const PATIENCE_S = 30;
const EXPLAIN_PATIENCE_S = 120;

/** Why there is no answer. */
export class ServiceError extends Error {
  /**
   * @param {object} told
   * @param {number} told.status of the answer; 0: there was none
   * @param {string} told.title
   * @param {string} told.detail
   * @param {string} [told.type] stable name of the kind of problem
   * @param {string} [told.requestId]
   * @param {number | null} [told.retryAfter] seconds
   * @param {{path: string, message: string}[]} [told.faults]
   * @param {string[]} [told.expected] features that the bundle was fitted on
   */
  constructor({ status, title, detail, type = "", requestId = "", retryAfter = null, faults = [], expected = [] }) {
    super(detail);
    Object.assign(this, { status, title, detail, type, requestId, retryAfter, faults, expected });
  }
}

let fallback = "";

/** @returns {string} the key of this browser tab; empty: none */
export function storedKey() {
  try {
    return sessionStorage.getItem(STORED) ?? "";
  } catch {
    return fallback; // a browser that allows no storage: the key lives as long as the page
  }
}

/** @param {string} key to send from now on; empty: none */
export function storeKey(key) {
  fallback = key;
  try {
    if (key) sessionStorage.setItem(STORED, key);
    else sessionStorage.removeItem(STORED);
  } catch {
    return; // kept in `fallback`
  }
}

/** @param {string} key @returns {boolean} whether a header can carry it */
export const isKey = (key) => /^[!-~]{1,300}$/.test(key);

/**
 * @param {string} path below the service's root
 * @param {{method?: string, body?: string, key?: string, seconds?: number, given?: AbortSignal}} [options]
 *   `given`: when to give it up
 * @returns {Promise<Response>}
 */
async function ask(path, { method = "GET", body, key = storedKey(), seconds = PATIENCE_S, given } = {}) {
  const headers = new Headers();
  if (key) headers.set("Authorization", `Bearer ${key}`);
  if (body !== undefined) headers.set("Content-Type", "application/json");
  const late = AbortSignal.timeout(seconds * 1000);
  const signal = given ? AbortSignal.any([given, late]) : late;
  let response;
  try {
    response = await fetch(new URL(path, BASE), { method, body, headers, signal, cache: "no-store" });
  } catch (error) {
    throw unanswered(/** @type {Error} */ (error), seconds);
  }
  if (!response.ok) throw await refusal(response);
  return response;
}

/** @param {Error} error @param {number} seconds */
function unanswered(error, seconds) {
  const late = error.name === "TimeoutError";
  const detail = late ? `Nothing came within ${seconds} s.` : `Nothing answers at ${BASE.origin}.`;
  return new ServiceError({ status: 0, title: "No answer from the service", detail });
}

/** @param {Response} response @returns {Promise<ServiceError>} */
async function refusal(response) {
  const said = await response.text().catch(() => "");
  let problem = {};
  try {
    problem = JSON.parse(said) ?? {};
  } catch {
    problem = { detail: said.slice(0, 500) }; // a proxy's own page
  }
  const seconds = Number(response.headers.get("retry-after") ?? NaN);
  return new ServiceError({
    status: response.status,
    title: String(problem.title ?? response.statusText),
    detail: String(problem.detail ?? ""),
    type: String(problem.type ?? ""),
    requestId: String(problem.request_id ?? response.headers.get("x-request-id") ?? ""),
    retryAfter: Number.isFinite(seconds) ? seconds : null,
    faults: Array.isArray(problem.errors) ? problem.errors : [],
    expected: Array.isArray(problem.expected) ? problem.expected : [],
  });
}

/**
 * @template T
 * @param {Response} response
 * @param {() => Promise<T>} read
 * @returns {Promise<T>} its body; a connection that breaks in the middle of it is no answer either
 */
async function whole(response, read) {
  try {
    return await read();
  } catch {
    const detail = `The answer to ${new URL(response.url).pathname} broke off, or is none of this service.`;
    throw new ServiceError({ status: 0, title: "No answer from the service", detail });
  }
}

/** @param {string} path @param {Parameters<typeof ask>[1]} [options] @returns {Promise<any>} */
async function askJson(path, options) {
  const response = await ask(path, options);
  return whole(response, () => response.json());
}

/** @param {string} path @param {Named} named it may have more: the service refuses what it does not know */
function withQuery(path, { model, version }) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries({ model, version })) if (value) query.set(name, value);
  return query.size ? `${path}?${query}` : path;
}

/** @typedef {{model?: string | null, version?: string | null}} Named a bundle; nothing: the usual one */

/** @param {Named} [named] @returns {Promise<any>} `GET /info` */
export const askInfo = (named = {}) => askJson(withQuery("info", named));

/** @param {Named} named @returns {Promise<any>} `GET /ui/bundle` */
export const askBundle = (named) => askJson(withQuery("ui/bundle", named));

/** @param {string} body @returns {Promise<any>} `POST /rerank` */
export const askRanking = (body) => askJson("rerank", { method: "POST", body });

/** @param {string} body @param {AbortSignal} given when to give it up @returns {Promise<any>} `POST /explain` */
export const askExplanation = (body, given) =>
  askJson("explain", { method: "POST", body, seconds: EXPLAIN_PATIENCE_S, given });

/** @returns {Promise<string>} `GET /metrics` */
export async function askMetrics() {
  const response = await ask("metrics");
  return whole(response, () => response.text());
}

/** @param {Named} named @returns {Promise<Blob>} the report of a bundle */
export async function askReport(named) {
  const response = await ask(withQuery("ui/report", named));
  return whole(response, () => response.blob());
}

/** @param {Named} named @returns {string} where the report is, for a link */
export const reportAddress = (named) => new URL(withQuery("ui/report", named), BASE).href;

/**
 * @param {"reload" | "rollback"} what
 * @param {string} key of the operator; used for this request, and kept nowhere
 * @param {Named} [named]
 * @returns {Promise<any>} `POST /admin/...`: what is served now
 */
export const change = (what, key, named = {}) => askJson(withQuery(`admin/${what}`, named), { method: "POST", key });
