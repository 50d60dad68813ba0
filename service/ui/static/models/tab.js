/** Models: what is served, how good it was on held-out queries, what was refused; reload and rollback. */

import { html, useState } from "../shared/html.js";
import { number, shortened } from "../shared/format.js";
import { askReport, reportAddress, storedKey } from "../shared/service.js";
import { Trouble } from "../shared/trouble.js";
import { Change } from "./change.js";
import { HeldOut } from "./held_out.js";

/** Of the table of bundles. */
const HEAD = ["model", "version", "kept for a rollback", "aliases", "default"];

/**
 * @param {object} props
 * @param {any} props.info of `GET /info`
 * @param {any} props.shown of `GET /ui/bundle`; null where it failed
 * @param {() => void} props.onChanged called after a reload or rollback
 * @param {() => void} props.onRefresh
 */
export function ModelsTab({ info, shown, onChanged, onRefresh }) {
  return html`<div class="models">
    <section class="panel" aria-labelledby="served-title">
      <h2 id="served-title">Served by this worker</h2>
      <div class="scroll" tabindex="0" role="region" aria-label="Served bundles">
        <table>
          <thead>
            <tr>
              ${HEAD.map((name) => html`<th scope="col">${name}</th>`)}
            </tr>
          </thead>
          <tbody>
            ${info.models.map(
              (one) => html`<tr key=${one.model}>
                <th scope="row"><bdi>${one.model}</bdi></th>
                <td><bdi>${one.version}</bdi></td>
                <td><bdi>${one.kept ?? "none"}</bdi></td>
                <td><bdi>${one.aliases.join(", ") || "none"}</bdi></td>
                <td>${one.default ? "yes" : "no"}</td>
              </tr>`,
            )}
          </tbody>
        </table>
      </div>
      <${Refused} refused=${info.refused} />
      <${Change} info=${info} onChanged=${onChanged} onRefresh=${onRefresh} />
    </section>
    <${About} info=${info} shown=${shown} />
    ${
      shown
        ? html`<${HeldOut} shown=${shown} info=${info} />`
        : html`<section class="panel">
            <h2>Held-out result</h2>
            <p class="soft">The bundle's own data are missing: see above.</p>
          </section>`
    }
  </div>`;
}

/** @param {{refused: any[]}} props */
function Refused({ refused }) {
  if (refused.length === 0) return html`<p class="soft">The last reload refused nothing.</p>`;
  return html`<div class="note warn">
    <p class="strong">Refused by the last reload: what was served before serves on.</p>
    <ul>
      ${refused.map(
        (one) => html`<li key=${one.model}>
          <strong><bdi>${one.model === "*" ? "the models folder" : `${one.model}/${one.version ?? "?"}`}</bdi></strong>:
          ${" "}<bdi>${shortened(one.reason, 600)}</bdi> <span class="soft">${one.at}</span>
        </li>`,
      )}
    </ul>
  </div>`;
}

/** @param {{info: any, shown: any}} props the chosen bundle in facts */
function About({ info, shown }) {
  const cutoffs = Object.entries(info.cutoffs).map(([name, cutoff]) => `${name} ${cutoff ?? "the whole list"}`);
  const weights = Object.entries(info.goals ?? {}).map(([name, weight]) => `${name} ${number(weight)}`);
  const facts = [
    ["made", info.created_at],
    ["data", shown?.data],
    ["features", `${info.features.length}, and ${info.relative.length} list-relative columns`],
    ["first stage", info.engine],
    ["strategies", info.strategies.join(", ")],
    ["auto means", info.default_strategy + (shown?.default_reason ? `: ${shown.default_reason}` : "")],
    ["scored by the second stage", cutoffs.join(", ")],
    ["probability", info.probability ? `of being ${info.probability.of === "choice" ? "chosen" : "relevant"}` : ""],
    ["weights of goals", weights.join(", ")],
    ["specialists", info.specialists.length || "none"],
    ["routing", info.routing.enabled ? "on" : `off: ${info.routing.reason}`],
    ["fingerprint", info.fingerprint],
  ];
  return html`<section class="panel" aria-labelledby="about-title">
    <h2 id="about-title"><bdi>${info.model}/${info.version}</bdi></h2>
    <dl class="facts">
      ${facts
        .filter(([, value]) => value !== undefined && value !== "")
        .map(([name, value]) => html`<div><dt>${name}</dt><dd><bdi>${shortened(value, 400)}</bdi></dd></div>`)}
    </dl>
    <${Report} info=${info} shown=${shown} />
  </section>`;
}

/** @param {{info: any, shown: any}} props the report: a link, or, where it needs the key, a file */
function Report({ info, shown }) {
  const [error, setError] = useState(/** @type {any} */ (null));
  if (!shown?.report) return html`<p class="soft">The bundle has no report.</p>`;
  const named = { model: info.model, version: info.version };
  if (!storedKey())
    return html`<p>
      <a href=${reportAddress(named)} target="_blank" rel="noopener noreferrer">The report of its fit</a>
    </p>`;

  async function save() {
    try {
      const address = URL.createObjectURL(await askReport(named));
      const link = Object.assign(document.createElement("a"), {
        href: address,
        download: `${info.model}-${info.version}-report.html`,
      });
      link.click();
      setTimeout(() => URL.revokeObjectURL(address), 60_000);
    } catch (failure) {
      setError(failure);
    }
  }
  return html`<p class="buttons"><button type="button" onClick=${save}>Save the report of its fit</button></p>
    ${error && html`<${Trouble} error=${error} what="The report was not saved" />`}`;
}
