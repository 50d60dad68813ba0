/** The parts of an explanation about one candidate: its stages, what it would take, who moves. */

import { html } from "../shared/html.js";
import { count, exactCell, number, plural, shortened } from "../shared/format.js";
import { Note } from "../shared/trouble.js";
import { Bars } from "./bars.js";

/** @typedef {(index: number) => string} Names of candidates */

/**
 * Why a part is not whole: it failed, or else its time was over.
 *
 * @typedef {{fault: string | null} | null} Gap null: it is whole
 */

/**
 * @param {any} one explanation of `POST /explain`
 * @param {string} part
 * @returns {Gap}
 */
export const gapOf = (one, part) => (one.incomplete.includes(part) ? { fault: one.faults?.[part] ?? null } : null);

/** @param {{gap: {fault: string | null}, late: string}} props in the place of a part that is not there */
export function Absent({ gap, late }) {
  if (gap.fault === null) return html`<p class="soft">${late}</p>`;
  return html`<p class="bad-text">It failed: <bdi>${shortened(gap.fault, 300)}</bdi></p>`;
}

/**
 * @param {object} props
 * @param {any} props.stage of the answer; null: it has none
 * @param {"first" | "second"} props.which
 * @param {Gap} props.gap
 */
export function StagePart({ stage, which, gap }) {
  const title = which === "first" ? "First stage" : "Second stage";
  if (!stage) {
    const why = gap
      ? html`<${Absent} gap=${gap} late="The time was over before it was explained." />`
      : html`<p class="soft">No ${which} stage scored this candidate.</p>`;
    return html`<section class="panel"><h2>${title}</h2>${why}</section>`;
  }
  const total = stage.score - stage.reference_score;
  const against = which === "first" ? "the mean of the list" : "a candidate of the list's middle values";
  const how = stage.exact ? "exact" : `sampled, ${plural(stage.evaluations, "evaluation")}; ± is one standard error`;
  return html`<section class="panel" aria-label=${title}>
    <h2>${title}: ${stage.ranker}</h2>
    <p>
      Its score is ${number(stage.score)}, which is ${number(Math.abs(total), 3)}
      ${total < 0 ? " below" : " above"} ${against} (${number(stage.reference_score)}). The features below add up to
      that (${how}).
    </p>
    ${
      stage.budget_spent &&
      html`<${Note} kind="warn">
        <p>Sampling stopped before its errors were small: read the bars with their errors.</p>
      <//>`
    }
    <${Bars}
      contributions=${stage.contributions}
      label=${`${title}: contributions`}
      reference=${which === "second" ? "in its place" : ""}
    />
  </section>`;
}

/**
 * The share of the list by all goals together.
 *
 * @param {{goals: any, gap: Gap}} props `goals` of the answer; undefined: the first goal alone gives the order
 */
export function GoalsPart({ goals, gap }) {
  if (!goals && !gap) return null;
  const shares = goals?.goals.map(({ goal, weight, contribution }) => ({
    feature: goal,
    value: weight,
    contribution,
    standard_error: null,
  }));
  const sampled = goals && !goals.exact ? "; ± is one standard error" : "";
  return html`<section class="panel whole" aria-label="All goals">
    <h2>All goals</h2>
    ${
      goals
        ? html`<p>
              Its share of the list by all goals is ${number(goals.score)}. It would be${" "}
              ${number(goals.reference_score)} without what the goals, or the features, add${sampled}. The stages below
              are of${" "}
              <bdi>${shortened(shares[0].feature, 40)}</bdi> alone.
            </p>
            <${Bars} contributions=${shares} label="All goals: by goal" head=${["goal", "weight"]} />
            <h3>By feature</h3>
            <${Bars} contributions=${goals.contributions} label="All goals: by feature" />`
        : html`<${Absent} gap=${gap} late="The time was over before it was explained." />`
    }
  </section>`;
}

/** @param {{against: any, name: string, other: string}} props two candidates compared */
export function AgainstPart({ against, name, other }) {
  const stages = [
    ["First stage", against.first_stage],
    ["Second stage", against.second_stage],
    ["All goals", against.goals],
  ];
  return html`<section class="panel" aria-labelledby="against-title">
    <h2 id="against-title"><bdi>${name}</bdi> compared with <bdi>${other}</bdi></h2>
    <p class="soft">Bars to the right speak for <bdi>${name}</bdi>, to the left for <bdi>${other}</bdi>.</p>
    ${stages.map(
      ([title, contributions]) =>
        contributions?.length > 0 &&
        html`<h3>${title}</h3>
          <${Bars} contributions=${contributions} label=${`${title}: difference`} reference="the other" />`,
    )}
  </section>`;
}

/**
 * @param {object} props
 * @param {any} props.passing null: the candidate is the first
 * @param {Gap} props.gap
 * @param {Names} props.nameOf
 * @param {(changes: any[]) => void} props.onTry
 */
export function PassingPart({ passing, gap, nameOf, onTry }) {
  const found = passing
    ? html`<${Found} passing=${passing} nameOf=${nameOf} onTry=${onTry} />`
    : gap
      ? html`<${Absent} gap=${gap} late="The time was over before this was tried." />`
      : html`<p>Nothing is above it.</p>`;
  return html`<section class="panel" aria-labelledby="passing-title">
    <h2 id="passing-title">What it would take</h2>
    ${found}
  </section>`;
}

/** @param {{passing: any, nameOf: Names, onTry: (changes: any[]) => void}} props */
function Found({ passing, nameOf, onTry }) {
  const { above, one, two, tried, untried } = passing;
  const ways = [one, two].filter(Boolean);
  const left = untried > 0 ? `, ${count(untried)} beyond the limits not` : "";
  return html`<p>
      To pass <bdi>${shortened(nameOf(above.index), 48)}</bdi>, on place ${above.rank},${" "}
      ${ways.length ? "this is enough" : "no change of one or two features within training's range is enough"}
      ${" "}(${plural(tried, "change")} tried${left})${ways.length ? ":" : "."}
    </p>
    <ul class="ways">
      ${ways.map(
        (changes) => html`<li>
          ${changes.map(
            ({ feature, from, to }, at) =>
              html`${at > 0 && " and "}<bdi>${shortened(feature, 40)}</bdi> from <bdi>${exactCell(from)}</bdi> to${" "}
                <strong><bdi>${exactCell(to)}</bdi></strong>`,
          )}
          ${" "}<button type="button" onClick=${() => onTry(changes)}>Try it</button>
        </li>`,
      )}
    </ul>`;
}

/**
 * @param {object} props
 * @param {any[]} props.moves
 * @param {Gap} props.gap
 * @param {Names} props.nameOf
 * @param {string} props.name of the candidate that is left out
 * @param {number} props.rank of it
 */
export function MovesPart({ moves, gap, nameOf, name, rank }) {
  return html`<section class="panel" aria-labelledby="moves-title">
    <h2 id="moves-title">Who moves without it</h2>
    ${
      gap
        ? html`<${Absent} gap=${gap} late="The time was over before this was tried." />`
        : moves.length === 0
          ? html`<p>Without <bdi>${name}</bdi>, the others keep their order.</p>`
          : html`<p>Ranked again without <bdi>${name}</bdi>, the order of these changes:</p>
              <ul>
                ${moves.map(
                  ({ index, rank: before, rank_without: without }) => html`<li key=${index}>
                    <bdi>${shortened(nameOf(index), 48)}</bdi>: place ${without},${" "}
                    not ${before > rank ? before - 1 : before}
                  </li>`,
                )}
              </ul>`
    }
  </section>`;
}
