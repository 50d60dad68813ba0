/** Tabs as ARIA describes them: arrow keys move between them, the panel belongs to the chosen one. */

import { html, useRef } from "./html.js";

/** @param {{tabs: Record<string, string>, chosen: string, onChoose: (name: string) => void}} props */
export function Tabs({ tabs, chosen, onChoose }) {
  const names = Object.keys(tabs);
  const row = useRef(/** @type {HTMLElement | null} */ (null));

  /** @param {KeyboardEvent} event */
  function press(event) {
    const at = names.indexOf(chosen);
    const next = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: names.length - 1 }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    const name = names[(next + names.length) % names.length];
    onChoose(name);
    /** @type {HTMLElement} */ (row.current?.querySelector(`#tab-${name}`)).focus();
  }

  return html`<div class="tabs" role="tablist" aria-label="Views" ref=${row} onKeyDown=${press}>
    ${names.map(
      (name) => html`<button
        type="button"
        role="tab"
        id=${`tab-${name}`}
        aria-selected=${name === chosen}
        aria-controls=${name === chosen ? `panel-${name}` : undefined}
        tabindex=${name === chosen ? 0 : -1}
        onClick=${() => onChoose(name)}
      >
        ${tabs[name]}
      </button>`,
    )}
  </div>`;
}
