/** Try: a list, its order before and after, and every value open to change. */

import { html, useState } from "../shared/html.js";
import { addressOf, MOST_CHARACTERS, packed } from "../shared/fragment.js";
import { plural, shortened } from "../shared/format.js";
import { Note, Trouble, Waiting } from "../shared/trouble.js";
import { Editor } from "./editor.js";
import { edited, restored } from "./list.js";
import { Order } from "./order.js";
import { BEFORE, comparable } from "./places.js";
import { withList } from "./ranking.js";
import { toState } from "./sharing.js";
import { Source } from "./source.js";
import { Waterfall } from "./waterfall.js";

/**
 * @param {object} props
 * @param {any} props.info of `GET /info`
 * @param {any} props.shown of `GET /ui/bundle`; null where it failed
 * @param {any} props.work see app.js
 * @param {(patch: object) => void} props.onWork
 * @param {() => void} props.onExplain
 * @param {() => void} props.onAgain
 */
export function TryTab({ info, shown, work, onWork, onExplain, onAgain }) {
  const { list, answer, baseline, error, busy, selected, strategy, specialist } = work;
  const offered = answer ? comparable(answer, list.edits.size ? baseline : null) : [];
  const before = offered.includes(work.before)
    ? work.before
    : (offered.at(offered.includes("first") ? 1 : 0) ?? "input");
  return html`<div class="try">
    <div class="side">
      <${Source} info=${info} shown=${shown} list=${list} onList=${(found) => onWork(withList(found))} />
      ${
        list &&
        html`<${Options}
          info=${info}
          offered=${offered}
          before=${before}
          strategy=${strategy}
          specialist=${specialist}
          onWork=${onWork}
        />`
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
        ${error && html`<p class="soft">Below is the last order that the service answered.</p>`}
        <${Outcome} answer=${answer} />
        <${Order}
          list=${list}
          answer=${answer}
          baseline=${baseline}
          before=${before}
          selected=${selected}
          busy=${busy}
          onSelect=${(index) => onWork({ selected: index })}
        />
        <p class="buttons">
          <button type="button" class="main" onClick=${onExplain}>Why this place?</button>
          <button type="button" disabled=${list.edits.size === 0} onClick=${() => onWork({ list: restored(list) })}>
            Undo all ${list.edits.size > 0 ? plural(list.edits.size, "edit") : "edits"}
          </button>
          <${Share} work=${work} info=${info} />
        </p>
      </section>
        <${Waterfall} timings=${answer.meta.timings_ms} />`
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

/** @param {any} props */
function Options({ info, offered, before, strategy, specialist, onWork }) {
  const mayName = info.specialists.length > 0 && (strategy === "auto" || strategy === "srm");
  return html`<section class="panel" aria-labelledby="options-title">
    <h2 id="options-title">How to rank</h2>
    <p class="field">
      <label for="strategy">Strategy</label>
      <select
        id="strategy"
        value=${strategy}
        onChange=${(event) => onWork({ strategy: event.target.value, specialist: null })}
      >
        ${info.strategies.map(
          (name) => html`<option value=${name}>${name === "auto" ? `auto (${info.default_strategy})` : name}</option>`,
        )}
      </select>
    </p>
    ${
      mayName &&
      html`<p class="field">
      <label for="specialist">Specialist</label>
      <select
        id="specialist"
        value=${specialist ?? ""}
        onChange=${(event) => onWork({ specialist: event.target.value === "" ? null : Number(event.target.value) })}
      >
        <option value="">whoever is chosen</option>
        ${info.specialists.map(({ number }) => html`<option value=${number}>${number}</option>`)}
      </select>
    </p>`
    }
    <p class="field">
      <label for="before">Compare with</label>
      <select id="before" value=${before} onChange=${(event) => onWork({ before: event.target.value })}>
        ${offered.map((name) => html`<option value=${name}>${BEFORE[name]}</option>`)}
      </select>
    </p>
  </section>`;
}

/** @param {{work: any, info: any}} props a link that holds the list and the edits */
function Share({ work, info }) {
  const [link, setLink] = useState({ list: null, text: "", said: "" });
  const current = link.list === work.list ? link : { text: "", said: "" };

  async function share() {
    const text = addressOf("try", await packed(toState(work, info)));
    if (text.length > MOST_CHARACTERS) {
      setLink({ list: work.list, text: "", said: "The list is too large for a link: share its file instead." });
      return;
    }
    history.replaceState(null, "", text);
    const copied = await navigator.clipboard?.writeText(text).then(
      () => true,
      () => false,
    );
    setLink({ list: work.list, text, said: copied ? "Copied." : "Copy it from here." });
  }

  return html`<button type="button" onClick=${share}>Link to this</button>
    <span class="said" role="status">${current.said}</span>
    ${
      current.text &&
      html`<input
        class="link"
        aria-label="Link to this list"
        readonly
        value=${current.text}
        onFocus=${(event) => event.target.select()}
      />`
    }`;
}
