/** Contributions of features to a score, as bars around zero. */

import { html, useState } from "../shared/html.js";
import { cell, number, shortened, signed } from "../shared/format.js";

/** Bars that are shown at first. */
const FIRST = 10;

/**
 * @typedef {object} Contribution of a feature, as `POST /explain` answers it
 * @property {string} feature
 * @property {number | string | null} value
 * @property {number | string | null} reference what stands in for it; null: nothing does
 * @property {number} contribution
 * @property {number | null} standard_error null: exact
 */

/**
 * @param {object} props
 * @param {Contribution[]} props.contributions largest first
 * @param {string} props.label of the table
 * @param {string} [props.reference] title of the column of references; empty: there is none
 * @param {string[]} [props.head] titles of what adds to the score, and of its value
 */
export function Bars({ contributions, label, reference = "", head = ["feature", "value"] }) {
  const [all, setAll] = useState(false);
  const shown = all ? contributions : contributions.slice(0, FIRST);
  const reach = contributions.map(({ contribution, standard_error: error }) => [
    contribution - (error ?? 0),
    contribution + (error ?? 0),
  ]);
  const low = Math.min(0, ...reach.map(([least]) => least));
  const high = Math.max(0, ...reach.map(([, most]) => most));
  const width = high - low || 1;
  const at = (value) => (100 * (value - low)) / width;
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${label}>
      <table class="bars">
        <thead>
          <tr>
            ${head.map((title) => html`<th scope="col">${title}</th>`)}
            ${reference && html`<th scope="col">${reference}</th>`}
            <th scope="col" colspan="2">adds to the score</th>
          </tr>
        </thead>
        <tbody>
          ${shown.map(
            ({ feature, value, reference: instead, contribution, standard_error: error }) => html`<tr key=${feature}>
              <th scope="row"><bdi>${shortened(feature, 40)}</bdi></th>
              <td><bdi>${cell(value)}</bdi></td>
              ${reference && html`<td class="soft"><bdi>${cell(instead)}</bdi></td>`}
              <td class="drawn" aria-hidden="true"><${Bar} at=${at} contribution=${contribution} error=${error} /></td>
              <td class="figure">
                ${signed(contribution)}${error !== null && html`<span class="soft"> ± ${number(error, 2)}</span>`}
              </td>
            </tr>`,
          )}
        </tbody>
      </table>
    </div>
    ${
      contributions.length > FIRST &&
      html`<button type="button" onClick=${() => setAll(!all)}>
        ${all ? "Show the largest only" : `Show all ${contributions.length}`}
      </button>`
    }`;
}

/** @param {{at: (value: number) => number, contribution: number, error: number | null}} props */
function Bar({ at, contribution, error }) {
  const between = (low, high) => ({ left: `${at(low)}%`, width: `${at(high) - at(low)}%` });
  const kind = contribution < 0 ? "less" : "more";
  return html`<span class="track">
    <span class=${`bar ${kind}`} style=${between(Math.min(0, contribution), Math.max(0, contribution))}></span>
    ${error !== null && html`<span class="error" style=${between(contribution - error, contribution + error)}></span>`}
    <span class="zero" style=${{ left: `${at(0)}%` }}></span>
  </span>`;
}
