/** Puts the page into the document. */

import { App } from "./app.js";
import { html, render } from "./shared/html.js";

const place = /** @type {HTMLElement} */ (document.getElementById("page"));
place.replaceChildren();
render(html`<${App} />`, place);
