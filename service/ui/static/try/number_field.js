/** A number as it is typed: half of one, such as "-0.", has no value, and writing it back would cut it off. */

import { html, useState } from "../shared/html.js";
import { shortest } from "../shared/format.js";

/**
 * @param {object} props further ones are attributes of the input
 * @param {any} props.value what the field shows until its text is changed, and again once it is left
 * @param {(value: any) => void} props.onValue called with null for an empty field
 */
export function NumberField({ value, onValue, ...attributes }) {
  const [typed, setTyped] = useState(/** @type {{text: string, value: any} | null} */ (null));
  return html`<input
    ...${attributes}
    class="number"
    type="number"
    step="any"
    value=${typed && Object.is(typed.value, value) ? typed.text : shown(value)}
    onInput=${(event) => {
      const { value: text, validity } = event.target;
      const meant = validity.badInput ? value : text === "" ? null : Number(text);
      setTyped({ text, value: meant });
      onValue(meant);
    }}
    onBlur=${() => setTyped(null)}
  />`;
}

/** @param {number | string | null} value as the field shows it: of a float32, no digit is noise */
const shown = (value) => (typeof value === "number" ? shortest(value) : (value ?? ""));
