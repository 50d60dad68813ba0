/** Where the time of an answer went: its steps, one after the other. */

import { html } from "../shared/html.js";
import { number } from "../shared/format.js";

const STEPS = /** @type {const} */ ([
  ["parse", "read"],
  ["queue", "wait"],
  ["first_stage", "first stage"],
  ["routing", "routing"],
  ["second_stage", "second stage"],
  ["probability", "probability"],
  ["goals", "other goals"],
]);

/**
 * @param {Record<string, number | null>} timings milliseconds by step, of an answer
 * @returns {{name: string, from: number, took: number}[]} the rest among them
 */
export function steps(timings) {
  let from = 0;
  const found = [];
  for (const [step, name] of STEPS) {
    const took = timings[step];
    if (took === null || took === undefined) continue;
    found.push({ name, from, took });
    from += took;
  }
  const rest = (timings.total ?? from) - from;
  if (rest > 0) found.push({ name: "the rest", from, took: rest });
  return found;
}

/** @param {{timings: Record<string, number | null>}} props */
export function Waterfall({ timings }) {
  const all = steps(timings);
  const total = Math.max(timings.total ?? 0, ...all.map(({ from, took }) => from + took), 1e-9);
  return html`<section class="panel" aria-labelledby="waterfall-title">
    <h2 id="waterfall-title">Time in the service: ${number(timings.total, 3)} ms</h2>
    <ol class="waterfall">
      ${all.map(
        ({ name, from, took }) => html`<li key=${name}>
          <span>${name}</span>
          <span class="track" aria-hidden="true"
            ><span class="bar" style=${{ left: `${(100 * from) / total}%`, width: `${(100 * took) / total}%` }}></span
          ></span>
          <span class="figure">${number(took, 3)} ms</span>
        </li>`,
      )}
    </ol>
  </section>`;
}
