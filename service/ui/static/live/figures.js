/**
 * What Live shows, computed from samples of `/metrics`.
 *
 * @typedef {import("./exposition.js").Samples} Samples
 * @typedef {{bounds: number[], counts: number[]}} Buckets upper bounds, the last of them infinite, and how many lie in
 *   each
 */

import { sumOf } from "./exposition.js";

const STAGES = ["parse", "queue", "first_stage", "routing", "second_stage", "probability", "goals", "total"];

/** @param {string} status @returns {boolean} whether an answer of this status is a refusal for lack of room or right */
const isRefusal = (status) => ["401", "403", "413", "429", "503"].includes(status);

/**
 * @param {Samples} samples
 * @param {string} name of a histogram
 * @param {(labels: Record<string, string>) => boolean} [wanted]
 * @returns {Buckets}
 */
export function bucketsOf(samples, name, wanted = () => true) {
  const upTo = new Map();
  for (const { labels, value } of samples.get(`${name}_bucket`) ?? []) {
    if (!wanted(labels)) continue;
    const bound = labels.le === "+Inf" ? Infinity : Number(labels.le);
    upTo.set(bound, (upTo.get(bound) ?? 0) + value);
  }
  const bounds = [...upTo.keys()].sort((one, other) => one - other);
  const counts = bounds.map((bound, at) => Math.max(0, upTo.get(bound) - (at ? upTo.get(bounds[at - 1]) : 0)));
  return { bounds, counts };
}

/**
 * @param {Buckets} buckets
 * @param {number} share from 0 to 1
 * @returns {number} the quantile, within its bucket by a straight line; NaN of nothing; the last bound where it lies
 *   beyond
 */
export function quantile({ bounds, counts }, share) {
  const all = counts.reduce((sum, count) => sum + count, 0);
  if (all === 0) return NaN;
  let below = 0;
  for (const [at, count] of counts.entries()) {
    if (count > 0 && below + count >= share * all) {
      const low = at ? bounds[at - 1] : 0;
      return Number.isFinite(bounds[at]) ? low + ((bounds[at] - low) * (share * all - below)) / count : low;
    }
    below += count;
  }
  return NaN;
}

/** @param {Samples} samples @returns {{stage: string, n: number, p50: number, p99: number}[]} seconds */
export function stages(samples) {
  return STAGES.map((stage) => {
    const buckets = bucketsOf(samples, "listwright_stage_seconds", (labels) => labels.stage === stage);
    const n = buckets.counts.reduce((sum, count) => sum + count, 0);
    return { stage, n, p50: quantile(buckets, 0.5), p99: quantile(buckets, 0.99) };
  }).filter(({ n, stage }) => n > 0 || stage === "total");
}

/** @param {Samples} samples @returns {{path: string, status: string, n: number, refusal: boolean}[]} most first */
export function requests(samples) {
  return (samples.get("listwright_requests_total") ?? [])
    .map(({ labels, value }) => ({
      path: labels.path,
      status: labels.status,
      n: value,
      refusal: isRefusal(labels.status),
    }))
    .filter(({ n }) => n > 0)
    .sort((one, other) => other.n - one.n);
}

/** @param {Samples} samples @returns {{stage: string, cause: string, n: number}[]} */
export function degradations(samples) {
  return (samples.get("listwright_degraded_total") ?? [])
    .map(({ labels, value }) => ({ stage: labels.stage_reached, cause: labels.cause, n: value }))
    .filter(({ n }) => n > 0)
    .sort((one, other) => other.n - one.n);
}

/**
 * @param {Samples} samples
 * @returns {{bundle: string, feature: string, kind: string, share: number}[]} of the candidates looked at, worst first
 */
export function drift(samples) {
  const looked = new Map(
    (samples.get("listwright_drift_candidates_total") ?? []).map(({ labels, value }) => [
      `${labels.model}/${labels.version}`,
      value,
    ]),
  );
  return (samples.get("listwright_drift_values_total") ?? [])
    .map(({ labels, value }) => {
      const bundle = `${labels.model}/${labels.version}`;
      return { bundle, feature: labels.feature, kind: labels.kind, share: value / (looked.get(bundle) || NaN) };
    })
    .filter(({ share }) => share > 0)
    .sort((one, other) => other.share - one.share);
}

/** @param {Samples} samples @returns {number} candidates that were compared with training */
export const looked = (samples) => sumOf(samples, "listwright_drift_candidates_total");

/**
 * @param {Samples} samples
 * @param {{model: string, version: string}} bundle
 * @returns {{buckets: Buckets, strange: number, training: {level: number, at: number}[]}}
 */
export function anomalies(samples, { model, version }) {
  const own = (labels) => labels.model === model && labels.version === version;
  const training = (samples.get("listwright_anomaly_training_quantile") ?? [])
    .filter(({ labels }) => own(labels))
    .map(({ labels, value }) => ({ level: Number(labels.quantile), at: value }));
  return {
    buckets: bucketsOf(samples, "listwright_anomaly_score", own),
    strange: sumOf(samples, "listwright_anomalous_queries_total", own),
    training,
  };
}

/** @param {Samples} samples @returns {Map<string, {outcome: string, n: number}[]>} requests of each experiment */
export function experiments(samples) {
  const found = new Map();
  for (const { labels, value } of samples.get("listwright_experiment_requests_total") ?? []) {
    if (!found.has(labels.experiment)) found.set(labels.experiment, []);
    if (value > 0) found.get(labels.experiment).push({ outcome: labels.outcome, n: value });
  }
  return found;
}
