/** Live: what the service does now, over all of its workers. */

import { html, useState } from "../shared/html.js";
import { bytes, count, number } from "../shared/format.js";
import { Note, Trouble, Waiting } from "../shared/trouble.js";
import { since, sumOf } from "./exposition.js";
import { degradations, requests, stages } from "./figures.js";
import { Anomalies, Drift, Experiments, Outcomes, Stages } from "./parts.js";
import { EVERY_S, useMetrics } from "./watching.js";

const SPANS = {
  start: "since the service started",
  opened: "since this view was opened",
  last: `the last ${EVERY_S} seconds`,
};

/** @param {{info: any, onLocked: () => void}} props */
export function LiveTab({ info, onLocked }) {
  const { first, previous, last, error } = useMetrics(info, onLocked);
  const [span, setSpan] = useState("start");
  if (!last) {
    return error
      ? html`<${Trouble} error=${error} what="No metrics: asking again every ${EVERY_S} s" />`
      : html`<${Waiting} what="Reading the metrics" />`;
  }
  const from = { start: null, opened: first?.samples ?? null, last: previous?.samples ?? last.samples }[span];
  const grown = since(last.samples, from);
  const recent = previous && since(last.samples, previous.samples);
  const rate = recent ? sumOf(recent, "listwright_requests_total") / (last.at - /** @type {any} */ (previous).at) : NaN;
  const all = requests(grown);
  return html`<div class="live">
    ${error && html`<${Trouble} error=${error} what="No metrics now: below are those of the last look" />`}
    <p class="field">
      <label for="span">Counted</label>
      <select id="span" value=${span} onChange=${(event) => setSpan(event.target.value)}>
        ${Object.entries(SPANS).map(([name, words]) => html`<option value=${name}>${words}</option>`)}
      </select>
    </p>
    <${Numbers} samples=${last.samples} rate=${rate} all=${all} grown=${grown} />
    <${Unready} samples=${last.samples} />
    <div class="grid">
      <${Outcomes} all=${all} degraded=${degradations(grown)} />
      <${Stages} stages=${stages(grown)} />
      <${Drift} samples=${grown} />
      <${Anomalies} samples=${grown} bundle=${info} />
      <${Experiments} samples=${grown} told=${last.experiments} />
    </div>
  </div>`;
}

/** @param {any} props the few numbers that tell most */
function Numbers({ samples, rate, all, grown }) {
  const now = (name) => sumOf(samples, name);
  const total = all.reduce((sum, { n }) => sum + n, 0);
  const refused = all.filter(({ refusal }) => refusal).reduce((sum, { n }) => sum + n, 0);
  const tiles = [
    ["requests a second", Number.isNaN(rate) ? "…" : number(rate, 3)],
    ["requests", count(total)],
    ["refused", count(refused)],
    ["degraded", count(sumOf(grown, "listwright_degraded_total") || 0)],
    ["late", count(sumOf(grown, "listwright_late_answers_total") || 0)],
    ["waiting, at work", `${count(now("listwright_waiting_requests"))}, ${count(now("listwright_working_requests"))}`],
    ["connections", count(now("listwright_open_connections"))],
    ["workers ready", `${count(now("listwright_ready_workers"))} of ${count(now("listwright_workers"))}`],
    ["memory", bytes(now("process_resident_memory_bytes"))],
  ];
  return html`<dl class="tiles">
    ${tiles.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}
  </dl>`;
}

/** @param {{samples: import("./exposition.js").Samples}} props */
function Unready({ samples }) {
  const [ready, wanted] = ["listwright_ready_workers", "listwright_workers"].map((name) => sumOf(samples, name));
  if (!(ready < wanted)) return null;
  return html`<${Note} kind="warn">
    <p>${count(wanted - ready)} of ${count(wanted)} workers take no traffic: see /readyz and the log.</p>
  <//>`;
}
