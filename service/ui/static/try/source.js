/** Where a list comes from: a golden list of the bundle, pasted text, or a file. */

import { html, useRef, useState } from "../shared/html.js";
import { plural, shortened } from "../shared/format.js";
import { Note } from "../shared/trouble.js";
import { makeList } from "./list.js";
import { readList } from "./reading.js";

/** @typedef {import("./list.js").List} List */

/**
 * @param {any} shown of `GET /ui/bundle`
 * @param {number} at
 * @returns {List | null}
 */
export function goldenList(shown, at) {
  const found = shown?.golden?.[at];
  if (!found) return null;
  const names = shown.features.map(({ name }) => name);
  const ids = found.rows.map((_, row) => `offer-${row + 1}`);
  return makeList({ names, rows: found.rows, ids, title: `Golden list ${at + 1}`, golden: at });
}

/**
 * @param {object} props
 * @param {any} props.shown of `GET /ui/bundle`; null where it failed
 * @param {List | null} props.list
 * @param {(list: List) => void} props.onList
 */
export function GoldenChoice({ shown, list, onList }) {
  const golden = shown?.golden ?? [];
  if (golden.length === 0) return null;
  return html`<p class="field">
    <label for="golden">Golden list of the bundle</label>
    <select
      id="golden"
      value=${list?.golden ?? ""}
      onChange=${(event) => onList(/** @type {List} */ (goldenList(shown, Number(event.target.value))))}
    >
      ${list?.golden === null && html`<option value="">your own list</option>`}
      ${golden.map((one, at) => html`<option value=${at}>${at + 1}: ${plural(one.rows.length, "candidate")}</option>`)}
    </select>
  </p>`;
}

/**
 * @param {object} props
 * @param {any} props.info of `GET /info`
 * @param {any} props.shown of `GET /ui/bundle`; null where it failed
 * @param {List | null} props.list
 * @param {(list: List) => void} props.onList
 */
export function Source({ info, shown, list, onList }) {
  const [fault, setFault] = useState("");
  const [leftOut, setLeftOut] = useState(/** @type {string[]} */ ([]));
  const [over, setOver] = useState(false);
  const text = useRef(/** @type {HTMLTextAreaElement | null} */ (null));
  const golden = shown?.golden ?? [];

  /** @param {string} content @param {string} title */
  function take(content, title) {
    try {
      const found = readList(content, shown?.features ?? info.features, info.limits.max_candidates);
      setFault("");
      setLeftOut(found.leftOut);
      onList(makeList({ ...found, title }));
    } catch (error) {
      setFault(/** @type {Error} */ (error).message);
    }
  }

  /** @param {File | undefined} file */
  async function takeFile(file) {
    if (!file) return;
    if (file.size > info.limits.max_payload_bytes) {
      setFault(`${shortened(file.name)} has ${file.size} bytes; the service takes ${info.limits.max_payload_bytes}.`);
      return;
    }
    take(await file.text(), shortened(file.name));
  }

  /** @param {DragEvent} event */
  function drop(event) {
    event.preventDefault();
    setOver(false);
    takeFile(event.dataTransfer?.files[0]);
  }

  return html`<section
    class=${`panel source ${over ? "over" : ""}`}
    aria-labelledby="source-title"
    onDragOver=${(event) => {
      event.preventDefault();
      setOver(true);
    }}
    onDragLeave=${() => setOver(false)}
    onDrop=${drop}
  >
    <h2 id="source-title">A list of candidates</h2>
    <${GoldenChoice}
      shown=${shown}
      list=${list}
      onList=${(found) => {
        setLeftOut([]);
        onList(found);
      }}
    />
    ${
      shown?.golden_fault &&
      html`<${Note} kind="warn">
        <p>The bundle's golden lists cannot be shown: ${shortened(shown.golden_fault, 300)}. Paste a list.</p>
      <//>`
    }
    <details open=${golden.length === 0}>
      <summary>Paste JSON or CSV, or drop a file here</summary>
      <p class="soft">
        A body of <code>POST /rerank</code>, an array of objects or rows, or a table with the features' names in its
        first line. It goes to this service only.
      </p>
      <label for="pasted">JSON or CSV</label>
      <textarea id="pasted" ref=${text} rows="6" spellcheck="false" dir="auto"></textarea>
      <p class="buttons">
        <button type="button" onClick=${() => take(text.current?.value ?? "", "Pasted list")}>Rank this</button>
        <label class="file"
          >or choose a file
          <input
            type="file"
            accept=".json,.csv,.tsv,.txt,application/json,text/csv"
            onChange=${(event) => {
              takeFile(event.target.files[0]);
              event.target.value = ""; // or the same file could not be chosen again
            }}
          />
        </label>
      </p>
    </details>
    ${fault && html`<div class="note bad" role="alert"><p><bdi>${shortened(fault, 400)}</bdi></p></div>`}
    ${
      leftOut.length > 0 &&
      html`<${Note}><p>
      Left out, as the bundle does not know ${leftOut.length === 1 ? "it" : "them"}:
      ${" "}<bdi>${shortened(leftOut.join(", "), 200)}</bdi>
    </p><//>`
    }
  </section>`;
}
