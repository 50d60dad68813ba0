/** The page: which bundle, which tab, and the list that Try and Why share. */

import { html, useCallback, useEffect, useRef, useState } from "./shared/html.js";
import { KeyForm } from "./shared/key_form.js";
import { readFragment, showTabInAddress, unpacked } from "./shared/fragment.js";
import { shortened } from "./shared/format.js";
import { askBundle, askInfo, storedKey, storeKey } from "./shared/service.js";
import { Tabs } from "./shared/tabs.js";
import { Trouble, Waiting } from "./shared/trouble.js";
import { LiveTab } from "./live/tab.js";
import { ModelsTab } from "./models/tab.js";
import { fromState } from "./try/sharing.js";
import { goldenList } from "./try/source.js";
import { TryTab } from "./try/tab.js";
import { useRanking, withList } from "./try/ranking.js";
import { WhyTab } from "./why/tab.js";

const TABS = { try: "Try", why: "Why", models: "Models", live: "Live" };

/** @typedef {import("./shared/service.js").Named} Named */

/** What the page has of a bundle. */
const NOTHING = { info: null, shown: null, shownError: null, error: null };

export function App() {
  const [tab, setTab] = useState(() => (Object.hasOwn(TABS, readFragment().tab) ? readFragment().tab : "try"));
  const [served, setServed] = useState(/** @type {any} */ (NOTHING));
  const [locked, setLocked] = useState(false);
  const [linkFault, setLinkFault] = useState("");
  const { work, change, rank } = useRanking(served.info, () => setLocked(true));
  const current = useRef(work);
  current.current = work;
  const opened = useRef(0);

  /** @param {string} next */
  const show = useCallback((next) => {
    setTab(next);
    showTabInAddress(next);
  }, []);

  /** @param {Named} [named] @returns {Promise<any>} what is known now */
  const load = useCallback(async (named = {}) => {
    let found;
    try {
      const info = await askInfo(named);
      found = { ...NOTHING, info };
      found.shown = await askBundle({ model: info.model, version: info.version });
    } catch (error) {
      if (error.status === 401) setLocked(true);
      found = found ? { ...found, shownError: error } : { ...NOTHING, error };
    }
    setServed((before) => (found.info ? found : { ...before, error: found.error }));
    return found;
  }, []);

  /** @param {Named} named choose another bundle; a list that fits it, too, stays */
  async function choose(named) {
    const before = served.info;
    const { info, shown } = await load(named);
    if (!info) return;
    const list = current.current.list;
    if (list && before?.fingerprint === info.fingerprint)
      change({ list: { ...list, golden: null }, answer: null, error: null });
    else {
      const options = { strategy: "auto", specialist: null, weights: null, minProbability: null };
      change({ ...withList(goldenList(shown, 0)), ...options });
    }
  }

  /** Open what a link holds; or else the list that is there already, or the first golden one. */
  async function open() {
    const { shared } = readFragment();
    let state = null;
    setLinkFault("");
    try {
      state = shared ? await unpacked(shared) : null;
    } catch {
      setLinkFault("it is damaged");
    }
    if (!state && current.current.list) return;
    const named = state ? { model: textOf(state.model), version: textOf(state.version) } : {};
    const place = (opened.current += 1);
    let found = await load(named);
    if (found.error?.status === 404 && state) found = await load();
    if (!found.info || place !== opened.current) return; // or another link was followed meanwhile
    try {
      if (state) {
        if (state.model !== found.info.model || state.version !== found.info.version) {
          setLinkFault(`its bundle, ${shortened(`${state.model}/${state.version}`, 80)}, is not served here`);
        }
        const held = fromState(state, (at) => goldenList(found.shown, at));
        change({ ...withList(held.list), ...held });
        return;
      }
    } catch (error) {
      setLinkFault(error.message);
    }
    change(withList(goldenList(found.shown, 0)));
  }

  useEffect(() => {
    open();

    /** A link was pasted into the address of a page that is open, or the browser went back to one. */
    function follow() {
      const { tab: wanted, shared } = readFragment();
      if (Object.hasOwn(TABS, wanted)) setTab(wanted);
      if (shared) open();
    }
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);

  /** @param {string} key */
  function unlock(key) {
    storeKey(key);
    setLocked(false);
    if (served.info) load({ model: served.info.model, version: served.info.version }).then(rank);
    else open();
  }

  async function again() {
    if (!served.info) await open();
    else if ((await load({ model: served.info.model, version: served.info.version })).info) rank();
    else if ((await load()).info) rank();
  }

  const { info, shown, shownError, error } = served;
  if (locked) return html`<${Frame}><${KeyForm} tried=${storedKey() !== ""} onKey=${unlock} /><//>`;
  if (!info && error)
    return html`<${Frame}><${Trouble} error=${error} what="Nothing is known of the service" onRetry=${again} /><//>`;
  if (!info) return html`<${Frame}><${Waiting} what="Asking the service" /><//>`;
  const shared = { info, shown, work, onWork: change };
  const locks = () => setLocked(true);
  const refresh = () => choose({ model: info.model });
  return html`<${Frame} info=${info} onChoose=${choose} onForget=${
    storedKey()
      ? () => {
          storeKey("");
          setLocked(true);
        }
      : null
  }>
    <${Tabs} tabs=${TABS} chosen=${tab} onChoose=${show} />
    ${
      linkFault &&
      html`<div class="note warn" role="alert">
        <p>The link is not shown as it was: ${shortened(linkFault, 300)}.</p>
      </div>`
    }
    ${shownError && html`<${Trouble} error=${shownError} what="The bundle's own data are missing" onRetry=${again} />`}
    ${error && html`<${Trouble} error=${error} what="The service was asked again" onRetry=${again} />`}
    <div role="tabpanel" id=${`panel-${tab}`} aria-labelledby=${`tab-${tab}`}>
      ${tab === "try" && html`<${TryTab} ...${shared} onAgain=${again} onExplain=${() => show("why")} />`}
      ${tab === "why" && html`<${WhyTab} ...${shared} onTry=${() => show("try")} onLocked=${locks} />`}
      ${tab === "models" && html`<${ModelsTab} info=${info} shown=${shown} onChanged=${refresh} onRefresh=${again} />`}
      ${tab === "live" && html`<${LiveTab} info=${info} onLocked=${locks} />`}
    </div>
  <//>`;
}

/** @param {unknown} value @returns {string | null} */
const textOf = (value) => (typeof value === "string" ? value.slice(0, 100) : null);

/** @param {{info?: any, onChoose?: (named: Named) => void, onForget?: (() => void) | null, children?: any}} props */
function Frame({ info, onChoose, onForget, children }) {
  const offered = info ? bundlesOf(info) : [];
  const at = offered.findIndex(({ model, version }) => model === info.model && version === info.version);
  return html`<header>
      <h1>Listwright</h1>
      ${
        offered.length > 1 &&
        html`<p class="field">
        <label for="bundle">Bundle</label>
        <select id="bundle" value=${at} onChange=${(event) => onChoose?.(offered[Number(event.target.value)])}>
          ${offered.map(
            ({ model, version, kept }, n) =>
              html`<option value=${n}>${model}/${version}${kept ? " (kept)" : ""}</option>`,
          )}
        </select>
      </p>`
      }
      ${offered.length === 1 && html`<p class="soft"><bdi>${info.model}/${info.version}</bdi></p>`}
      ${onForget && html`<button type="button" onClick=${onForget}>Forget the key</button>`}
    </header>
    <main>${children}</main>`;
}

/** @param {any} info @returns {{model: string, version: string, kept: boolean}[]} all that a request may name */
function bundlesOf(info) {
  return info.models.flatMap(({ model, version, kept }) => [
    { model, version, kept: false },
    ...(kept ? [{ model, version: kept, kept: true }] : []),
  ]);
}
