/** Asks for explanations. One that nobody waits for any more is given up: the service explains one list at a time. */

import { useEffect, useState } from "../shared/html.js";
import { askExplanation } from "../shared/service.js";
import { requestBody } from "../try/list.js";
import { fieldsOf } from "../try/ranking.js";

/** Milliseconds that the service has to notice that one was given up: until then it holds a place. */
const PAUSE_MS = 200;

/** Milliseconds in which a refusal may come from one that was given up: it is asked again. */
const GRACE_MS = 10_000;

let givenUpAt = -Infinity;

/**
 * @param {any} info of `GET /info`
 * @param {import("../try/ranking.js").Work} work
 * @param {() => void} onLocked
 * @returns {{explained: any, error: any, busy: boolean, again: () => void}} `explained` is null until there is one
 */
export function useExplanation(info, work, onLocked) {
  const { list, selected, pinned, strategy, specialist, weights, minProbability } = work;
  const [state, setState] = useState({ explained: null, error: null, busy: false });
  const [asked, setAsked] = useState(0);
  useEffect(() => {
    if (!list) return undefined;
    const against = pinned !== null && pinned !== selected ? pinned : null;
    const body = requestBody(list, { ...fieldsOf(info, work), candidate: selected, against });
    const giveUp = new AbortController();
    let asking = false;

    /** @returns {Promise<{explained: any, error: any}>} */
    async function answered() {
      try {
        return { explained: await askExplanation(body, giveUp.signal), error: null };
      } catch (error) {
        const isOwn = error.status === 429 && performance.now() < givenUpAt + GRACE_MS;
        if (!isOwn || giveUp.signal.aborted) return { explained: null, error };
        await new Promise((resume) => setTimeout(resume, PAUSE_MS));
        return answered();
      }
    }

    async function explain() {
      asking = true;
      const outcome = await answered();
      asking = false;
      if (giveUp.signal.aborted) return;
      if (outcome.error?.status === 401) onLocked();
      setState({ ...outcome, busy: false });
    }

    setState((before) => ({ ...before, busy: true }));
    const timer = setTimeout(explain, Math.max(0, givenUpAt + PAUSE_MS - performance.now()));
    return () => {
      clearTimeout(timer);
      if (asking) givenUpAt = performance.now();
      giveUp.abort();
    };
  }, [list, selected, pinned, strategy, specialist, weights, minProbability, info.model, info.version, asked]);
  return { ...state, again: () => setAsked((n) => n + 1) };
}

/** @param {any} error @returns {boolean} whether the service explains nothing, as it is set up */
export const isOff = (error) => error.status === 404 && error.type.endsWith(":not-found");
