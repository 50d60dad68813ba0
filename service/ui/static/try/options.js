/** How a list is ranked: by which ranker, for which goals, and from which probability on. */

import { html } from "../shared/html.js";
import { number, percent, shortened } from "../shared/format.js";
import { NumberField } from "./number_field.js";
import { BEFORE } from "./places.js";

/** @param {any} props */
export function Options({ info, offered, before, weighted, strategy, specialist, onWork }) {
  const mayName = info.specialists.length > 0 && (strategy === "auto" || strategy === "srm");
  return html`<section class="panel" aria-labelledby="options-title">
    <h2 id="options-title">How to rank</h2>
    <p class="field">
      <label for="strategy">Strategy</label>
      <select
        id="strategy"
        value=${strategy}
        onChange=${(event) => onWork({ strategy: event.target.value, specialist: null })}
      >
        ${info.strategies.map(
          (name) => html`<option value=${name}>${name === "auto" ? `auto (${info.default_strategy})` : name}</option>`,
        )}
      </select>
    </p>
    ${
      mayName &&
      html`<p class="field">
      <label for="specialist">Specialist</label>
      <select
        id="specialist"
        value=${specialist ?? ""}
        onChange=${(event) => onWork({ specialist: event.target.value === "" ? null : Number(event.target.value) })}
      >
        <option value="">whoever is chosen</option>
        ${info.specialists.map(({ number }) => html`<option value=${number}>${number}</option>`)}
      </select>
    </p>`
    }
    <p class="field">
      <label for="before">Compare with</label>
      <select id="before" value=${before} onChange=${(event) => onWork({ before: event.target.value })}>
        ${offered.map((name) => {
          const title = name === "edits" && weighted ? "before my changes" : BEFORE[name];
          return html`<option value=${name}>${title}</option>`;
        })}
      </select>
    </p>
  </section>`;
}

/**
 * A slider and a number for each goal.
 *
 * @param {object} props
 * @param {Record<string, number>} props.goals default weight by name
 * @param {Record<string, number> | null} props.weights those that are not the default ones
 * @param {(patch: object) => void} props.onWork
 */
export function Goals({ goals, weights, onWork }) {
  const most = 2 * Math.max(...Object.values(goals));

  /** @param {string} name @param {number | null} weight null: the default one */
  function set(name, weight) {
    const { [name]: _, ...others } = weights ?? {};
    const changed = weight === null ? others : { ...others, [name]: weight };
    onWork({ weights: Object.keys(changed).length ? changed : null, before: "edits" });
  }

  return html`<section class="panel" aria-labelledby="goals-title">
    <h2 id="goals-title">Weights of the goals</h2>
    ${Object.entries(goals).map(([name, usual], at) => {
      const weight = weights?.[name] ?? usual;
      return html`<p class="scale" key=${name}>
        <label for=${`weight-${at}`} title=${shortened(name, 220)}><bdi>${shortened(name, 40)}</bdi></label>
        <span class="slider marked" style=${{ "--mark": usual / most }}><input
          id=${`weight-${at}`}
          type="range"
          min="0"
          max=${most}
          step=${most / 200}
          value=${Math.min(weight, most)}
          aria-valuetext=${`${number(weight)}, by default ${number(usual)}`}
          onInput=${(event) => set(name, Number(Number(event.target.value).toPrecision(6)))}
        /></span>
        <${NumberField}
          min="0"
          aria-label=${`${shortened(name, 40)}, number`}
          placeholder=${number(usual)}
          value=${weights?.[name] ?? null}
          onValue=${(value) => set(name, value)}
        />
      </p>`;
    })}
    <p class="buttons">
      <button type="button" disabled=${weights === null} onClick=${() => onWork({ weights: null })}>
        Default weights
      </button>
    </p>
  </section>`;
}

/**
 * The probability below which candidates are left out.
 *
 * @param {object} props
 * @param {"choice" | "relevance"} props.of what a probability is of
 * @param {number | null} props.least null: nothing is left out
 * @param {any} props.answer null: none yet
 * @param {(patch: object) => void} props.onWork
 */
export function Cutoff({ of, least, answer, onWork }) {
  const rule = answer?.meta.rules?.find(({ name }) => name === "min_probability");
  const value = least === null ? null : Number((100 * least).toPrecision(12));

  /** @param {number | null} percentage */
  const set = (percentage) => onWork({ minProbability: percentage ? percentage / 100 : null });

  return html`<section class="panel" aria-labelledby="cutoff-title">
    <h2 id="cutoff-title">Probability of being ${of === "choice" ? "chosen" : "relevant"}</h2>
    <p class="scale">
      <label for="least">Leave out below</label>
      <span class="slider"><input
        id="least"
        type="range"
        min="0"
        max="100"
        step=".5"
        value=${value ?? 0}
        aria-valuetext=${percent(least ?? 0)}
        onInput=${(event) => set(Number(event.target.value))}
      /></span>
      <${NumberField}
        min="0"
        max="100"
        aria-label="Leave out below, per cent"
        placeholder="0"
        value=${value}
        onValue=${set}
      />
      <span aria-hidden="true">%</span>
    </p>
    <p class="said" role="status">
      ${rule?.reason === null && `${rule.candidates} of ${answer.ranks.length} left out`}
    </p>
  </section>`;
}
