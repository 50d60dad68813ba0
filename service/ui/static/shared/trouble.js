/** Failures, shown as what they are. */

import { html } from "./html.js";
import { shortened } from "./format.js";

const MOST_FAULTS = 10;

/**
 * @param {object} props
 * @param {any} props.error a ServiceError, or any other error
 * @param {string} [props.what] what was tried
 * @param {() => void} [props.onRetry]
 */
export function Trouble({ error, what = "", onRetry }) {
  const { status, detail, faults = [], requestId, retryAfter } = error;
  const wait = retryAfter === null || retryAfter === undefined ? "" : ` Ask again in ${retryAfter} s.`;
  return html`<div class="note bad" role="alert">
    <p class="strong">${what && `${what}: `}${titleOf(error)}</p>
    <p><bdi>${shortened(detail ?? error.message, 600)}</bdi>${wait}</p>
    ${
      faults.length > 1 &&
      html`<ul>
      ${faults.slice(0, MOST_FAULTS).map(
        (fault) =>
          html`<li>
              <code><bdi>${shortened(fault.path, 80)}</bdi></code>: <bdi>${shortened(fault.message, 200)}</bdi>
            </li>`,
      )}
    </ul>`
    }
    ${status > 0 && requestId && html`<p class="soft">Request <code>${shortened(requestId, 64)}</code></p>`}
    ${onRetry && html`<button type="button" onClick=${onRetry}>Ask again</button>`}
  </div>`;
}

/** @param {any} error @returns {string} */
function titleOf({ status, title }) {
  if (status === undefined) return "This page failed";
  if (status === 0) return title;
  if (status === 429) return `Refused: too many requests (${status})`;
  return `${title} (${status})`;
}

/**
 * @param {object} props
 * @param {"warn" | "plain" | "good" | "bad"} [props.kind]
 * @param {any} props.children
 */
export function Note({ kind = "plain", children }) {
  return html`<div class=${`note ${kind}`} role="status">${children}</div>`;
}

/** @param {{what: string}} props something that is on its way */
export const Waiting = ({ what }) => html`<p class="waiting" role="status">${what} …</p>`;
