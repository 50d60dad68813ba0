/** Try: lists ranked by the service. */

import { html, useState } from "../shared/html.js";
import { addressOf, MOST_CHARACTERS, packed } from "../shared/fragment.js";
import { Board, Undo } from "./board.js";
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
  const { list, answer } = work;
  return html`<${Board}
    info=${info}
    shown=${shown}
    work=${work}
    onWork=${onWork}
    onAgain=${onAgain}
    source=${html`<${Source} info=${info} shown=${shown} list=${list} onList=${(found) => onWork(withList(found))} />`}
    buttons=${html`<button type="button" class="main" onClick=${onExplain}>Why this place?</button>
      <${Undo} list=${list} onWork=${onWork} />
      <${Share} work=${work} info=${info} />`}
    below=${answer && html`<${Waterfall} timings=${answer.meta.timings_ms} />`}
  />`;
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
