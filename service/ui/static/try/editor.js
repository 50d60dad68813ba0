/** The values of one candidate, each of which can be changed. */

import { html, useState } from "../shared/html.js";
import { cell, number, shortened } from "../shared/format.js";
import { nameOf } from "./list.js";
import { NumberField } from "./number_field.js";

/** Cells that are drawn at a time: the filter finds the others. */
const MOST_CELLS = 160;

/** From so many on there is a filter. */
const FILTERED = 13;

/**
 * @param {object} props
 * @param {import("./list.js").List} props.list
 * @param {any[]} props.features of the bundle
 * @param {number} props.row
 * @param {(column: number, value: import("./list.js").Value) => void} props.onEdit
 * @param {() => void} props.onRestore
 */
export function Editor({ list, features, row, onEdit, onRestore }) {
  const [filter, setFilter] = useState("");
  const known = new Map(features.map((feature) => [feature.name, feature]));
  const columns = list.names.map((name, column) => ({ name, column, feature: known.get(name) }));
  const wanted = columns.filter(({ name }) => name.toLowerCase().includes(filter.toLowerCase()));
  const edits = columns.filter(({ column }) => list.edits.has(`${row}:${column}`)).length;
  return html`<section class="panel editor" aria-labelledby="editor-title">
    <h2 id="editor-title">Values of <bdi>${shortened(nameOf(list, row), 48)}</bdi></h2>
    ${
      columns.length >= FILTERED &&
      html`<p class="field">
      <label for="filter">Features whose name has</label>
      <input id="filter" type="search" value=${filter} onInput=${(event) => setFilter(event.target.value)} />
    </p>`
    }
    <ul class="cells">
      ${wanted.slice(0, MOST_CELLS).map(
        ({ name, column, feature }) => html`<${Cell}
          key=${`${row}:${column}`}
          id=${`cell-${column}`}
          name=${name}
          feature=${feature}
          value=${list.rows[row][column]}
          original=${list.original[row][column]}
          onValue=${(value) => onEdit(column, value)}
        />`,
      )}
    </ul>
    ${
      wanted.length > MOST_CELLS && html`<p class="soft">${wanted.length - MOST_CELLS} more: the filter finds them.</p>`
    }
    <p class="buttons">
      <button type="button" disabled=${edits === 0} onClick=${onRestore}>Undo the edits of this candidate</button>
    </p>
  </section>`;
}

/**
 * @param {object} props
 * @param {string} props.id
 * @param {string} props.name
 * @param {any} props.feature undefined: unknown to the bundle
 * @param {import("./list.js").Value} props.value
 * @param {import("./list.js").Value} props.original
 * @param {(value: import("./list.js").Value) => void} props.onValue
 */
function Cell({ id, name, feature, value, original, onValue }) {
  const changed = !Object.is(value, original);
  const numeric = feature?.kind !== "categorical";
  return html`<li class=${`cell ${changed ? "changed" : ""}`}>
    <label for=${id} title=${shortened(name, 220)}><bdi>${shortened(name, 40)}</bdi></label>
    ${
      numeric
        ? html`<${NumberInput} id=${id} name=${name} feature=${feature} value=${value} onValue=${onValue} />`
        : html`<${CategoryInput} id=${id} feature=${feature} value=${value} onValue=${onValue} />`
    }
    ${changed && html`<span class="soft was">was ${cell(original)}</span>`}
  </li>`;
}

/**
 * A number as a field and, where training's quantiles are known, a slider.
 *
 * @param {{id: string, name: string, feature: any, value: any, onValue: (value: any) => void}} props
 */
function NumberInput({ id, name, feature, value, onValue }) {
  const quantiles = feature?.quantiles;
  const missing = value === null;
  const slides = quantiles && quantiles.at(-1) > quantiles[0];
  const outside = quantiles && typeof value === "number" && (value < quantiles[0] || value > quantiles.at(-1));
  return html`${
    slides && html`<${Slider} id=${id} name=${name} quantiles=${quantiles} value=${value} onValue=${onValue} />`
  }
    <${NumberField}
      id=${slides ? `${id}-number` : id}
      aria-label=${slides ? `${shortened(name)}, number` : undefined}
      placeholder="missing"
      value=${value}
      onValue=${onValue}
    />
    <label class="missing"
      ><input
        type="checkbox"
        checked=${missing}
        aria-label=${`${shortened(name)} is missing`}
        onChange=${(event) => onValue(event.target.checked ? null : (quantiles?.[3] ?? 0))}
      />
      missing</label
    >
    ${
      outside &&
      html`<span class="soft outside">
        outside ${number(quantiles[0], 3)} to ${number(quantiles.at(-1), 3)}, training's range
      </span>`
    }`;
}

/** @param {{id: string, name: string, quantiles: number[], value: any, onValue: (value: number) => void}} props */
function Slider({ id, name, quantiles, value, onValue }) {
  const [low, high] = [quantiles[0], /** @type {number} */ (quantiles.at(-1))];
  const share = (at) => `${(100 * (quantiles[at] - low)) / (high - low)}%`;
  const middle = typeof value === "number" ? value : quantiles[3];
  return html`<span class="slider" style=${{ "--from": share(2), "--to": share(4) }}><input
    id=${id}
    type="range"
    min=${low}
    max=${high}
    step=${(high - low) / 200}
    value=${Math.min(Math.max(middle, low), high)}
    title=${`half of training's values of ${shortened(name)} lie in the shaded part`}
    aria-valuetext=${cell(value)}
    onInput=${(event) => onValue(Number(Number(event.target.value).toPrecision(6)))}
  /></span>`;
}

/** @param {{id: string, feature: any, value: any, onValue: (value: any) => void}} props */
function CategoryInput({ id, feature, value, onValue }) {
  const categories = feature.categories ?? [];
  if (!Array.isArray(categories) || feature.known > categories.length) {
    return html`<input
      id=${id}
      type="text"
      placeholder="missing"
      value=${value ?? ""}
      onInput=${(event) => onValue(event.target.value === "" ? null : event.target.value)}
    />`;
  }
  const chosen =
    value === null ? "missing" : categories.includes(value) ? `known-${categories.indexOf(value)}` : "unknown";
  return html`<select
    id=${id}
    value=${chosen}
    onChange=${(event) => {
      const at = event.target.value;
      if (at === "missing") onValue(null);
      else if (at.startsWith("known-")) onValue(categories[Number(at.slice(6))]);
    }}
  >
    ${chosen === "unknown" && html`<option value="unknown">${shortened(value, 40)} (unknown in training)</option>`}
    ${categories.map((category, at) => html`<option value=${`known-${at}`}>${shortened(category, 60)}</option>`)}
    <option value="missing">missing</option>
  </select>`;
}
