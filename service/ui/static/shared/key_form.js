/** Asks for the key of this service. */

import { html, useState } from "./html.js";
import { isKey } from "./service.js";

/** @param {{tried: boolean, onKey: (key: string) => void}} props */
export function KeyForm({ tried, onKey }) {
  const [fault, setFault] = useState("");

  /** @param {SubmitEvent} event */
  function submit(event) {
    event.preventDefault();
    const key = String(new FormData(/** @type {HTMLFormElement} */ (event.target)).get("key")).trim();
    if (isKey(key)) onKey(key);
    else setFault("A key has letters, digits and signs, and no blanks.");
  }

  return html`<form class="panel lonely" onSubmit=${submit}>
    <h2>This service wants a key</h2>
    ${tried && html`<p class="strong" role="alert">The key was not taken: it is wrong, or was removed.</p>`}
    <p class="field">
      <label for="key">Key</label>
      <input id="key" name="key" type="password" autocomplete="off" required autofocus />
    </p>
    ${fault && html`<p class="strong" role="alert">${fault}</p>`}
    <p class="soft">It stays in this browser tab until you close it, and is sent to this service only.</p>
    <p class="buttons"><button type="submit" class="main">Open</button></p>
  </form>`;
}
