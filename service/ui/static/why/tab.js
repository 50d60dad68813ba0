/** Why: one candidate explained, alone or compared with a pinned one. */

import { html } from "../shared/html.js";
import { shortened } from "../shared/format.js";
import { Note, Trouble, Waiting } from "../shared/trouble.js";
import { edited, nameOf, withFeature } from "../try/list.js";
import { isOff, useExplanation } from "./explaining.js";
import { AgainstPart, gapOf, GoalsPart, MovesPart, PassingPart, StagePart } from "./parts.js";
import { RoutePart } from "./route.js";

/**
 * @param {object} props
 * @param {any} props.info of `GET /info`
 * @param {any} props.shown of `GET /ui/bundle`; null where it failed
 * @param {import("../try/ranking.js").Work} props.work
 * @param {(patch: object) => void} props.onWork
 * @param {() => void} props.onTry
 * @param {() => void} props.onLocked
 */
export function WhyTab({ info, shown, work, onWork, onTry, onLocked }) {
  const { list, selected, pinned, answer } = work;
  const { explained, error, busy, again } = useExplanation(info, work, onLocked);
  if (!list) return html`<p class="empty">There is no list yet: choose or paste one under Try.</p>`;
  const name = (index) => nameOf(list, index);
  const ranks = answer?.ranks ?? list.rows.map((_, index) => index + 1); // null: left out
  const order = [...list.rows.keys()].sort((one, other) => (ranks[one] ?? Infinity) - (ranks[other] ?? Infinity));
  return html`<div class="why">
    <section class="panel" aria-labelledby="why-title">
      <h2 id="why-title">Why does it stand there?</h2>
      <div class="fields">
        <p class="field">
          <label for="candidate">Candidate</label>
          <select
            id="candidate"
            value=${selected}
            onChange=${(event) => onWork({ selected: Number(event.target.value) })}
          >
            ${order.map(
              (index) => html`<option value=${index}>${ranks[index] ?? "–"}. ${shortened(name(index), 60)}</option>`,
            )}
          </select>
        </p>
        <p class="buttons">
          ${
            pinned === null
              ? html`<button type="button" onClick=${() => onWork({ pinned: selected })}>
                  Pin it, to compare another with it
                </button>`
              : html`<span>Pinned: <bdi>${shortened(name(pinned), 48)}</bdi></span>
                <button type="button" onClick=${() => onWork({ pinned: null })}>Unpin</button>`
          }
        </p>
      </div>
      ${pinned === selected && html`<p class="soft">Choose another candidate: it is compared with the pinned one.</p>`}
      ${busy && html`<${Waiting} what=${`Explaining ${shortened(name(selected), 48)}`} />`}
    </section>
    ${error && html`<${Unexplained} error=${error} onRetry=${again} />`}
    ${explained && html`<${Explained} explained=${explained} busy=${busy} name=${name} onTry=${tryChanges} />`}
  </div>`;

  /** @param {any[]} changes of the explained candidate: made in Try */
  function tryChanges(changes) {
    const { features } = shown ?? info;
    let changed = /** @type {import("../try/list.js").List} */ (list);
    const row = explained.explanations[0].candidate.index;
    for (const { feature, to } of changes) {
      changed = withFeature(changed, feature, features.find(({ name }) => name === feature)?.default ?? null);
      changed = edited(changed, row, changed.names.indexOf(feature), to);
    }
    onWork({ list: changed, selected: row, before: "edits" });
    onTry();
  }
}

/** @param {{error: any, onRetry: () => void}} props */
function Unexplained({ error, onRetry }) {
  if (isOff(error)) {
    return html`<${Note} kind="warn">
      <p class="strong">Explanations are off.</p>
      <p>Start the service with <code>LISTWRIGHT_EXPLAIN=true</code> to have them.</p>
    <//>`;
  }
  if (error.status === 504) {
    // its detail says whether the time was over or the first stage failed
    return html`<${Trouble} error=${{ ...error, title: "Nothing could be explained" }} onRetry=${onRetry} />`;
  }
  return html`<${Trouble} error=${error} what="No explanation" onRetry=${onRetry} />`;
}

/** @param {{explained: any, busy: boolean, name: (index: number) => string, onTry: (changes: any[]) => void}} props */
function Explained({ explained, busy, name, onTry }) {
  const { ranking, meta } = explained;
  const [one] = explained.explanations;
  if (!one)
    return html`<${Note} kind="warn">
      <p>The time (<code>LISTWRIGHT_EXPLAIN_TIMEOUT_MS</code>) was over before anything was explained.</p>
    <//>`;
  const { candidate, against } = one;
  const called = shortened(name(candidate.index), 48);
  const gap = (part) => gapOf(one, part);
  const failed = one.incomplete.filter((part) => gap(part)?.fault !== null);
  const late = one.incomplete.filter((part) => gap(part)?.fault === null);
  return html`<div class=${`explained ${busy ? "busy" : ""}`} aria-busy=${busy}>
    <p class="verdict">
      <bdi>${called}</bdi> is number ${candidate.rank} of ${ranking.ranks.length}.
      ${one.rules && html` <${RuledPlace} rules=${one.rules} />`}
    </p>
    ${
      failed.length > 0 &&
      html`<${Note} kind="bad">
        ${failed.map(
          (part) => html`<p key=${part}>Failed: ${named([part])} (<bdi>${shortened(gap(part)?.fault, 300)}</bdi>)</p>`,
        )}
      <//>`
    }
    ${
      late.length > 0 &&
      html`<${Note} kind="warn"><p>
      The time (<code>LISTWRIGHT_EXPLAIN_TIMEOUT_MS</code>) was over: ${named(late)}${" "}
      ${late.length === 1 ? "is" : "are"} not complete.
    </p><//>`
    }
    ${
      ranking.meta.status === "degraded" &&
      html`<${Note} kind="warn">
        <p>
          Degraded: the order is of ${ranking.meta.stage_reached.replaceAll("_", " ")}.${" "}
          <bdi>${shortened(ranking.meta.reason ?? "", 300)}</bdi>
        </p>
      <//>`
    }
    <div class="explanations">
      ${
        against &&
        html`<div class="whole">
          <${AgainstPart} against=${against} name=${called} other=${shortened(name(against.index), 48)} />
        </div>`
      }
      <${GoalsPart} goals=${one.goals} gap=${gap("goals")} />
      <${StagePart} stage=${one.second_stage} which="second" gap=${gap("second_stage")} />
      <${StagePart} stage=${one.first_stage} which="first" gap=${gap("first_stage")} />
      <div class="whole consequences">
        <${PassingPart} passing=${one.passing} gap=${gap("passing")} nameOf=${name} onTry=${onTry} />
        <${MovesPart} moves=${one.moves} gap=${gap("moves")} nameOf=${name} name=${called} rank=${candidate.rank} />
        <${RoutePart} route=${ranking.route} router=${one.router} anomaly=${one.anomaly} gap=${gap("anomaly")} />
      </div>
    </div>
    <p class="soft">${timesOf(meta.timings_ms)}</p>
  </div>`;
}

/** @param {{rules: {rank: number | null, names: string[]}}} props what rules made of the place */
function RuledPlace({ rules: { rank, names } }) {
  const where = rank === null ? "Rules exclude it" : `With rules it is number ${rank}`;
  return html`${where}${names.length > 0 && html`: <bdi>${names.join(", ")}</bdi>`}.`;
}

/** @param {string[]} parts of an explanation @returns {string} */
const named = (parts) => parts.join(", ").replaceAll("_", " ");

/** @param {Record<string, number>} timings @returns {string} */
function timesOf(timings) {
  const told = Object.entries(timings ?? {}).filter(([, ms]) => typeof ms === "number");
  if (!told.length) return "";
  return `Milliseconds: ${told.map(([step, ms]) => `${step.replaceAll("_", " ")} ${Math.round(ms)}`).join(", ")}.`;
}
