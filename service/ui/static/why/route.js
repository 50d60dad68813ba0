/** The parts of an explanation about the whole list: why this ranker answered, how unusual the query is. */

import { html } from "../shared/html.js";
import { number, percent, shortened, signed } from "../shared/format.js";
import { Absent } from "./parts.js";

/**
 * @param {object} props
 * @param {any} props.route of the answer
 * @param {any} props.router what the bundle's router made of the list; null: it was not asked
 * @param {any} props.anomaly null: the bundle has no anomaly score, or there is a gap
 * @param {import("./parts.js").Gap} props.gap
 */
export function RoutePart({ route, router, anomaly, gap }) {
  const specialist = route.specialist === null ? "" : ` ${route.specialist}`;
  const sure =
    route.confidence === null ? "" : ` It is the best one with a probability of ${route.confidence.toFixed(2)}.`;
  return html`<section class="panel" aria-labelledby="route-title">
    <h2 id="route-title">Why this ranker</h2>
    <p>${route.strategy}${specialist} answered, decided by: ${route.decided_by}.${sure}</p>
    ${router && html`<${Router} router=${router} />`}
    ${
      anomaly
        ? html`<${Anomaly} anomaly=${anomaly} />`
        : gap
          ? html`<${Absent} gap=${gap} late="The time was over before the anomaly score." />`
          : html`<p class="soft">The bundle has no anomaly score.</p>`
    }
  </section>`;
}

/** @param {{router: {probabilities: number[], gains: number[], margin: number | null}}} props */
function Router({ router }) {
  const { probabilities, gains, margin } = router;
  const most = probabilities.indexOf(Math.max(...probabilities));
  const rule =
    margin === null
      ? "This bundle's router never takes a specialist."
      : `The router takes the most probable specialist if its gain is above ${number(margin, 3)}.`;
  return html`<p>${rule}</p>
    <div class="scroll" tabindex="0" role="region" aria-label="Specialists, as the router sees them">
      <table>
        <thead>
          <tr>
            <th scope="col">specialist</th>
            <th scope="col" class="figure">probability</th>
            <th scope="col" class="figure">gain of NDCG</th>
          </tr>
        </thead>
        <tbody>
          ${probabilities.map(
            (probability, at) => html`<tr key=${at}>
              <th scope="row">${at}${at === most && html` <span class="soft">(most probable)</span>`}</th>
              <td class="figure">${number(probability, 3)}</td>
              <td class="figure">${signed(gains[at])}</td>
            </tr>`,
          )}
        </tbody>
      </table>
    </div>`;
}

/** @param {{anomaly: any}} props */
function Anomaly({ anomaly }) {
  const levels = Object.entries(anomaly.training_quantiles).map(([level, value]) => [Number(level), Number(value)]);
  const below = levels.filter(([, value]) => value <= anomaly.score).map(([level]) => level);
  const place = below.length
    ? `above ${percent(Math.max(...below))} of training's queries`
    : "among the most usual of training's queries";
  return html`<p>The query's anomaly score is ${number(anomaly.score, 3)}${levels.length > 0 && `: ${place}`}.</p>
    ${
      anomaly.features.length > 0 &&
      html`<p>What makes it unusual, with the score that the query would have without it:</p>
      <ul>
        ${anomaly.features.map(
          ({ feature, value, anomaly_without: without }) => html`<li key=${feature}>
            <bdi>${shortened(feature, 60)}</bdi> (${number(value, 3)}): ${number(without, 3)},
            ${` ${signed(without - anomaly.score, 2)}`}
          </li>`,
        )}
      </ul>`
    }`;
}
