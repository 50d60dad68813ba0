/** A list, its order before and after, and every value open to change. */

import { html } from "../shared/html.js";
import { plural, shortened } from "../shared/format.js";
import { Note, Trouble, Waiting } from "../shared/trouble.js";
import { Editor } from "./editor.js";
import { edited, restored } from "./list.js";
import { Cutoff, Goals, Options } from "./options.js";
import { Order } from "./order.js";
import { comparable } from "./places.js";

/**
 * @param {object} props
 * @param {any} props.info of `GET /info`
 * @param {any} props.shown of `GET /ui/bundle`; null where it failed
 * @param {any} props.work see ranking.js
 * @param {(patch: object) => void} props.onWork
 * @param {() => void} props.onAgain
 * @param {any} props.source panel in which a list is chosen
 * @param {any} props.buttons below the order
 * @param {any} [props.below] the panel of the order
 */
export function Board({ info, shown, work, onWork, onAgain, source, buttons, below }) {
  const { list, answer, baseline, error, busy, selected, strategy, specialist } = work;
  const offered = answer ? comparable(answer, list.edits.size || work.weights ? baseline : null) : [];
  const before = offered.includes(work.before)
    ? work.before
    : (offered.at(offered.includes("first") ? 1 : 0) ?? "input");
  return html`<div class="try">
    <div class="side">
      ${source}
      ${
        list &&
        html`<${Options}
          info=${info}
          offered=${offered}
          before=${before}
          weighted=${work.weights !== null}
          strategy=${strategy}
          specialist=${specialist}
          onWork=${onWork}
        />`
      }
      ${
        list &&
        info.goals &&
        html`<${Goals} goals=${info.goals} weights=${work.weights} onWork=${onWork} />`
      }
      ${
        list &&
        info.probability &&
        html`<${Cutoff} of=${info.probability.of} least=${work.minProbability} answer=${answer} onWork=${onWork} />`
      }
    </div>
    <div class="middle">
      ${!list && html`<p class="empty">Choose or paste a list: its order appears here.</p>`}
      ${error && html`<${Trouble} error=${error} what="The list was not ranked" onRetry=${onAgain} />`}
      ${list && !answer && !error && html`<${Waiting} what="Ranking" />`}
      ${
        answer &&
        html`<section class="panel" aria-labelledby="order-title">
        <h2 id="order-title"><bdi>${shortened(list.title, 60)}</bdi>: ${plural(list.rows.length, "candidate")}</h2>
        ${error && html`<p class="soft">Below is the order of the last answer.</p>`}
        <${Outcome} answer=${answer} />
        <${Order}
          list=${list}
          answer=${answer}
          baseline=${baseline}
          before=${before}
          weighted=${work.weights !== null}
          selected=${selected}
          busy=${busy}
          onSelect=${(index) => onWork({ selected: index })}
        />
        <p class="buttons">${buttons}</p>
      </section>
        ${below}`
      }
    </div>
    ${
      list &&
      answer &&
      html`<div class="side">
      <${Editor}
        list=${list}
        features=${shown?.features ?? info.features}
        row=${selected}
        onEdit=${(column, value) => onWork({ list: edited(list, selected, column, value) })}
        onRestore=${() => onWork({ list: restored(list, selected) })}
      />
    </div>`
    }
  </div>`;
}

/** @param {{list: import("./list.js").List, onWork: (patch: object) => void}} props */
export const Undo = ({ list, onWork }) => html`<button
  type="button"
  disabled=${list.edits.size === 0}
  onClick=${() => onWork({ list: restored(list) })}
>
  Undo all ${list.edits.size > 0 ? plural(list.edits.size, "edit") : "edits"}
</button>`;

/** @param {{answer: any}} props what the answer says of itself: who ranked, whether as asked */
function Outcome({ answer }) {
  const { route, meta } = answer;
  const who = {
    caller: "the request",
    hook: "the hook",
    router: "the router",
    abstained: "the default, as the router abstained",
    bundle: "the bundle",
  };
  const specialist = route.specialist === null ? "" : ` ${route.specialist}`;
  const sure = route.confidence === null ? "" : `, probability ${route.confidence.toFixed(2)}`;
  return html`${
    meta.status === "degraded" &&
    html`<div class="note warn degraded" role="alert">
      <p class="strong">Degraded: the answer is of ${meta.stage_reached.replaceAll("_", " ")}.</p>
      <p><bdi>${shortened(meta.reason ?? "", 400)}</bdi></p>
    </div>`
  }
    ${
      meta.ignored.length > 0 &&
      html`<${Note} kind="warn"><p>Ignored features: <bdi>${shortened(meta.ignored.join(", "), 200)}</bdi></p><//>`
    }
    <p class="soft">
      Ranked by ${route.strategy}${specialist}, chosen by ${who[route.decided_by] ?? route.decided_by}${sure}.
    </p>
    <${Rules} rules=${meta.rules ?? []} />`;
}

/** @param {{rules: any[]}} props what rules of merchandising did to the list */
function Rules({ rules }) {
  if (!rules.length) return null;
  return html`<ul class="soft rule-effects">
    ${rules.map(
      ({ name, action, candidates, reason }) => html`<li>
        <bdi>${name}</bdi> (${action}):
        ${reason === null ? ` ${plural(candidates, "candidate")}` : html` not applied, <bdi>${shortened(reason, 300)}</bdi>`}
      </li>`,
    )}
  </ul>`;
}
