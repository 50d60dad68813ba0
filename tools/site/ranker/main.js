/** The demo, ranked in the browser: what Try shows, without a service. */

import { html, render, useEffect, useState } from "./shared/html.js";
import { number } from "./shared/format.js";
import { bundle, openFiles } from "./shared/service.js";
import { Board, Undo } from "./try/board.js";
import { useRanking, withList } from "./try/ranking.js";
import { GoldenChoice, goldenList } from "./try/source.js";

const { info, shown } = bundle;

function Page() {
  const { work, change, rank } = useRanking(info, () => {});
  const [state, setState] = useState("loading");
  const { list, answer } = work;
  useEffect(() => change(withList(goldenList(shown, 0))), []);
  const seen = answer !== null;
  useEffect(() => {
    if (!seen) return;
    const open = () => openFiles().then(() => setState("ready"), () => setState("failed"));
    setTimeout(open, 50); // once the list is painted: compiling keeps the browser busy
  }, [seen]);
  useEffect(() => {
    if (state === "ready") rank();
  }, [state]);
  const took = answer?.meta.timings_ms.total ?? null;
  return html`<${Board}
    info=${info}
    shown=${shown}
    work=${work}
    onWork=${change}
    onAgain=${rank}
    source=${html`<section class="panel" aria-labelledby="source-title">
      <h2 id="source-title">A list of candidates</h2>
      <${GoldenChoice} shown=${shown} list=${list} onList=${(found) => change(withList(found))} />
      <p class="soft" role="status">
        ${
          took !== null
            ? `Ranked in this browser in ${number(took, 2)} ms.`
            : state === "failed"
              ? "ONNX Runtime was not loaded. The orders of golden lists were stored with this page."
              : "Loading ONNX Runtime. The order shown was stored with this page; edits are ranked in a moment."
        }
      </p>
    </section>`}
    buttons=${html`<${Undo} list=${list} onWork=${change} />`}
  />`;
}

const place = /** @type {HTMLElement} */ (document.getElementById("page"));
place.replaceChildren();
render(html`<${Page} />`, place);

const frame = /** @type {HTMLElement | null} */ (window.frameElement);
if (frame) fit(frame);

/** Give the frame the height of the page, and the page the colours that the reader chose for the site. */
function fit(frame) {
  new ResizeObserver(() => (frame.style.height = `${document.body.offsetHeight}px`)).observe(document.body);
  const rules = [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules]);
  const dark = rules.filter((rule) => rule.conditionText === "(prefers-color-scheme: dark)");
  const site = frame.ownerDocument.body;
  const colour = () => {
    const chosen = site.dataset.mdColorScheme === "slate";
    document.documentElement.style.colorScheme = chosen ? "dark" : "light";
    for (const rule of dark) rule.media.mediaText = chosen ? "all" : "not all";
  };
  colour();
  new MutationObserver(colour).observe(site, { attributeFilter: ["data-md-color-scheme"] });
}
