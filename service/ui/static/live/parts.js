/** The parts of Live: outcomes, stages, drift, anomalies, experiments. */

import { html, useState } from "../shared/html.js";
import { count, duration, number, percent, plural, shortened } from "../shared/format.js";
import { anomalies, drift, experiments, looked } from "./figures.js";
import { Histogram } from "./plots.js";

/** Rows of drift that are shown at first. */
const WORST = 12;

/**
 * @param {object} props
 * @param {string} props.title
 * @param {string[]} props.head
 * @param {any[][]} props.rows
 */
function Table({ title, head, rows }) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${`${title}: table`}>
    <table class="figures">
      <thead><tr>${head.map((name) => html`<th scope="col">${name}</th>`)}</tr></thead>
      <tbody>
        ${rows.map(
          ([name, ...cells]) => html`<tr key=${name}>
            <th scope="row"><bdi>${name}</bdi></th>
            ${cells.map((cell) => html`<td>${cell}</td>`)}
          </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

/** @param {{all: ReturnType<typeof import("./figures.js").requests>, degraded: any[]}} props */
export function Outcomes({ all, degraded }) {
  const refused = all
    .filter(({ refusal }) => refusal)
    .map(({ status, path, n }) => `${count(n)} × ${status} at ${path}`);
  const rows = all.map(({ path, status, n, refusal }) => [
    path,
    html`<span class=${refusal ? "bad-text" : ""}>${status}</span>`,
    count(n),
  ]);
  return html`<section class="panel" aria-labelledby="outcomes-title">
    <h2 id="outcomes-title">Requests</h2>
    ${
      all.length === 0
        ? html`<p class="soft">None.</p>`
        : html`<${Table} title="Requests by path and status" head=${["path", "status", "requests"]} rows=${rows} />`
    }
    <p class="soft">${refused.length === 0 ? "Nothing was refused." : `Refused: ${refused.join(", ")}.`}</p>
    <h3>Degraded answers</h3>
    ${
      degraded.length === 0
        ? html`<p class="soft">None: every answer is of the stage that was asked for.</p>`
        : html`<ul>
            ${degraded.map(({ stage, cause, n }) => {
              const why = cause === "deadline" ? "for lack of time" : "as a stage failed";
              return html`<li>${count(n)} by ${stage.replaceAll("_", " ")}, ${why}</li>`;
            })}
          </ul>`
    }
  </section>`;
}

/** @param {{stages: ReturnType<typeof import("./figures.js").stages>}} props */
export function Stages({ stages }) {
  const rows = stages.map(({ stage, n, p50, p99 }) => [
    stage.replaceAll("_", " "),
    duration(p50),
    duration(p99),
    count(n),
  ]);
  return html`<section class="panel" aria-labelledby="stages-title">
    <h2 id="stages-title">Time by stage</h2>
    <${Table} title="Time by stage" head=${["stage", "half within", "99 % within", "answers"]} rows=${rows} />
    <p class="soft">Quantiles lie within the buckets of the histogram.</p>
  </section>`;
}

const KINDS = {
  missing: "missing",
  below: "below training's range",
  above: "above training's range",
  unknown: "unknown category",
};

/** @param {{samples: import("./exposition.js").Samples}} props */
export function Drift({ samples }) {
  const [all, setAll] = useState(false);
  const found = drift(samples);
  const rows = (all ? found : found.slice(0, WORST)).map(({ feature, kind, share }) => [
    shortened(feature, 40),
    KINDS[kind] ?? kind,
    percent(share),
  ]);
  return html`<section class="panel" aria-labelledby="drift-title">
    <h2 id="drift-title">Drift, worst first</h2>
    <p class="soft">Shares of ${plural(looked(samples) || 0, "candidate")} that were compared with training.</p>
    ${
      rows.length === 0
        ? html`<p>No value was seldom or never seen in training.</p>`
        : html`<${Table} title="Drift by feature" head=${["feature", "values", "share"]} rows=${rows} />`
    }
    ${
      found.length > WORST &&
      html`<button type="button" onClick=${() => setAll(!all)}>
        ${all ? "Show the worst only" : `Show all ${found.length}`}
      </button>`
    }
  </section>`;
}

/** @param {{samples: import("./exposition.js").Samples, bundle: any}} props */
export function Anomalies({ samples, bundle }) {
  const { buckets, strange, training } = anomalies(samples, bundle);
  const all = buckets.counts.reduce((sum, n) => sum + n, 0);
  const marks = training
    .filter(({ level }) => [0.5, 0.99].includes(level))
    .map(({ level, at }) => ({ at, label: `${percent(level)} of training` }));
  const told = marks.map(({ at, label }) => `${label} lie below ${number(at, 3)}`).join(", ");
  const queries = plural(all, "query", "queries");
  return html`<section class="panel" aria-labelledby="anomalies-title">
    <h2 id="anomalies-title">Anomaly scores of <bdi>${bundle.model}/${bundle.version}</bdi></h2>
    ${
      all === 0
        ? html`<p class="soft">No query was scored: there was none, or the bundle has no anomaly score.</p>`
        : html`<${Histogram}
              buckets=${buckets}
              marks=${marks}
              label=${`Histogram of the anomaly scores of ${queries}`}
            />
          <p class="soft">
            ${queries}; ${percent(strange / all)} of them above the 0.99 quantile of training, where 1 % is usual.
            ${told && ` ${told}.`}
          </p>`
    }
  </section>`;
}

/**
 * @param {{samples: import("./exposition.js").Samples, told: any}} props `told` of `GET /info`; none: there is no file
 */
export function Experiments({ samples, told }) {
  const counted = experiments(samples);
  return html`<section class="panel" aria-labelledby="experiments-title">
    <h2 id="experiments-title">Experiments on traffic</h2>
    ${!told && html`<p class="soft">None: <code>LISTWRIGHT_EXPERIMENTS</code> names no file.</p>`}
    ${told?.killed && html`<div class="note warn"><p>All are off: <bdi>${shortened(told.killed, 300)}</bdi></p></div>`}
    ${
      told?.refused &&
      html`<div class="note bad"><p>The file is not used: <bdi>${shortened(told.refused, 300)}</bdi></p></div>`
    }
    ${told?.experiments.length === 0 && html`<p class="soft">The file names none.</p>`}
    ${told?.experiments.map((one) => html`<${Experiment} one=${one} outcomes=${counted.get(one.name) ?? []} />`)}
  </section>`;
}

/** @param {{one: any, outcomes: {outcome: string, n: number}[]}} props */
function Experiment({ one, outcomes }) {
  const against = one.challenger ? `${one.challenger} against ${one.control}` : one.control;
  return html`<h3><bdi>${shortened(one.name)}</bdi>: ${one.kind}, ${percent(one.share)} of traffic</h3>
    <p>
      <bdi>${shortened(against, 100)}</bdi>.${" "}
      ${one.running ? "Runs." : html`Does not run: <bdi>${shortened(one.reason, 300)}</bdi>`}
    </p>
    ${
      outcomes.length > 0 &&
      html`<ul>
        ${outcomes.map(({ outcome, n }) => html`<li>${outcome}: ${count(n)}</li>`)}
      </ul>`
    }`;
}
