/** Means over held-out queries with their intervals, as a table and as a drawing. */

import { html, useState } from "../shared/html.js";
import { plural, shortened, signed } from "../shared/format.js";

/**
 * @param {object} props
 * @param {any} props.shown of `GET /ui/bundle`
 * @param {any} props.info of `GET /info`
 */
export function HeldOut({ shown, info }) {
  const names = unique(shown.held_out.map(({ name }) => name));
  const rankers = unique(shown.held_out.map(({ ranker }) => ranker));
  const [wanted, setWanted] = useState("ndcg@10");
  const chosen = names.includes(wanted) ? wanted : names[0];
  if (names.length === 0) {
    return html`<section class="panel">
      <h2>Held-out result</h2>
      <p class="soft">The bundle has no metrics.</p>
    </section>`;
  }
  const found = (ranker, name) => shown.held_out.find((one) => one.ranker === ranker && one.name === name);
  const title = (ranker) => shortened(shown.titles[ranker] ?? ranker.replaceAll("_", " "), 40);
  const serves = (ranker) => ranker === info.default_strategy;
  const queries = Math.max(...shown.held_out.map(({ n }) => n));
  const rows = rankers
    .map((ranker) => ({ title: title(ranker), serves: serves(ranker), ...found(ranker, chosen) }))
    .filter(({ mean }) => mean !== undefined);
  return html`<section class="panel" aria-labelledby="held-title">
    <h2 id="held-title">Held-out result on ${plural(queries, "query", "queries")}</h2>
    <p class="field">
      <label for="metric">Drawn</label>
      <select id="metric" value=${chosen} onChange=${(event) => setWanted(event.target.value)}>
        ${names.map((name) => html`<option value=${name}>${name}</option>`)}
      </select>
    </p>
    <${Intervals} rows=${rows} />
    <div class="scroll" tabindex="0" role="region" aria-label="Held-out table">
      <table class="figures">
        <thead>
          <tr>
            <th scope="col">ranker</th>
            ${names.map((name) => html`<th scope="col">${name}</th>`)}
          </tr>
        </thead>
        <tbody>
          ${rankers.map(
            (ranker) => html`<tr key=${ranker} class=${serves(ranker) ? "strong" : ""}>
              <th scope="row"><bdi>${title(ranker)}</bdi>${serves(ranker) ? " (auto)" : ""}</th>
              ${names.map((name) => html`<td><${Figure} metric=${found(ranker, name)} /></td>`)}
            </tr>`,
          )}
        </tbody>
      </table>
    </div>
    <p class="soft">
      Mean with its 95 % interval, from ${shown.held_out_from}. Protocol: ${shortened(shown.protocol, 300)}.
    </p>
    ${shown.compared.length > 0 && html`<${Compared} compared=${shown.compared} />`}
  </section>`;
}

/** @param {string[]} names @returns {string[]} */
const unique = (names) => [...new Set(names)];

/** @param {{metric: any}} props */
function Figure({ metric }) {
  if (!metric) return "–";
  return html`${metric.mean.toFixed(3)} <span class="soft">${metric.low.toFixed(3)}–${metric.high.toFixed(3)}</span>`;
}

/** @param {{rows: any[]}} props one interval below the other, on one scale */
function Intervals({ rows }) {
  const low = Math.min(...rows.map((row) => row.low));
  const high = Math.max(...rows.map((row) => row.high));
  const at = (value) => (high > low ? (100 * (value - low)) / (high - low) : 50);
  return html`<ul class="intervals">
    ${rows.map(
      (row) => html`<li key=${row.ranker} class=${row.serves ? "strong" : ""}>
        <span><bdi>${row.title}</bdi></span>
        <span class="track" aria-hidden="true"
          ><span class="line" style=${{ left: `${at(row.low)}%`, width: `${at(row.high) - at(row.low)}%` }}></span
          ><span class="dot" style=${{ left: `${at(row.mean)}%` }}></span
        ></span>
        <span class="figure">${row.mean.toFixed(3)}</span>
      </li>`,
    )}
  </ul>`;
}

/** @param {{compared: any[]}} props how auto was chosen */
function Compared({ compared }) {
  return html`<h3>How auto was chosen</h3>
    <ul>
      ${compared.map(
        (one) => html`<li>
          <bdi>${shortened(one.ranker)}</bdi> over <bdi>${shortened(one.over)}</bdi>:
          ${` ${one.metric} ${signed(one.mean)} `}
          <span class="soft">(${signed(one.low)} to ${signed(one.high)}, ${plural(one.n, "query", "queries")})</span>
        </li>`,
      )}
    </ul>`;
}
