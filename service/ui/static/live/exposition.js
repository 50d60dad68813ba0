/**
 * Prometheus' text format as samples.
 *
 * @typedef {{name: string, labels: Record<string, string>, value: number}} Sample
 * @typedef {Map<string, Sample[]>} Samples by name
 */

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)(?: -?\d+)?$/;
const LABEL = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g;
const VALUES = { "+Inf": Infinity, "-Inf": -Infinity };
const ESCAPED = { n: "\n" };

/** Series that only grow, by how their names end: counters, and the parts of histograms. All others are gauges. */
const GROWS = /_(?:total|bucket|count|sum)$/;

/** @param {string} text of `GET /metrics` @returns {Samples} */
export function parseExposition(text) {
  const found = new Map();
  for (const line of text.split("\n")) {
    if (line === "" || line[0] === "#") continue;
    const match = LINE.exec(line);
    if (!match) continue;
    const [, name, labels = "", value] = match;
    const sample = { name, labels: parseLabels(labels), value: VALUES[value] ?? Number(value) };
    if (!found.has(name)) found.set(name, []);
    found.get(name).push(sample);
  }
  return found;
}

/** @param {string} text @returns {Record<string, string>} */
function parseLabels(text) {
  const labels = {};
  for (const [, name, value] of text.matchAll(LABEL)) {
    labels[name] = value.replace(/\\(.)/g, (_, character) => ESCAPED[character] ?? character);
  }
  return labels;
}

/**
 * @param {Samples} now
 * @param {Samples | null} before null: since the service started
 * @returns {Samples} by how much counters and buckets have grown since; a restart of the service begins at 0 again.
 *   Gauges are what they are now.
 */
export function since(now, before) {
  if (before === null) return now;
  const grown = new Map();
  for (const [name, samples] of now) {
    if (!GROWS.test(name)) {
      grown.set(name, samples);
      continue;
    }
    const earlier = new Map((before.get(name) ?? []).map((sample) => [keyOf(sample), sample.value]));
    const differences = samples.map((sample) => {
      const past = earlier.get(keyOf(sample)) ?? 0;
      return { ...sample, value: sample.value >= past ? sample.value - past : sample.value };
    });
    grown.set(name, differences);
  }
  return grown;
}

/** @param {Sample} sample */
const keyOf = ({ labels }) => JSON.stringify(Object.entries(labels).sort());

/**
 * @param {Samples} samples
 * @param {string} name
 * @param {(labels: Record<string, string>) => boolean} [wanted]
 * @returns {number} their sum; NaN where there is no such series
 */
export function sumOf(samples, name, wanted = () => true) {
  const found = samples.get(name);
  if (!found) return NaN;
  return found.filter(({ labels }) => wanted(labels)).reduce((sum, { value }) => sum + value, 0);
}
