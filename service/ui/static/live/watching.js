/**
 * Looks at `/metrics`, and at `/info` for experiments, every two seconds while the page is in sight. Three looks are
 * kept: the first, the last and the one before it. There is no history.
 */

import { useEffect, useState } from "../shared/html.js";
import { askInfo, askMetrics } from "../shared/service.js";
import { parseExposition } from "./exposition.js";

export const EVERY_S = 2;

/**
 * @typedef {{samples: import("./exposition.js").Samples, experiments: any, at: number}} Look with what `/info` says of
 *   experiments; `at` in seconds
 */

/**
 * @param {any} info of `GET /info` as the page was opened: without experiments, it is not asked again
 * @param {() => void} onLocked
 * @returns {{first: Look | null, previous: Look | null, last: Look | null, error: any}}
 */
export function useMetrics(info, onLocked) {
  const [state, setState] = useState(/** @type {any} */ ({ first: null, previous: null, last: null, error: null }));
  useEffect(() => {
    let ended = false;
    let timer = 0;

    async function look() {
      if (!document.hidden) {
        try {
          const [text, told] = await Promise.all([askMetrics(), info.experiments ? askInfo() : null]);
          const now = { samples: parseExposition(text), experiments: told?.experiments, at: performance.now() / 1000 };
          if (!ended) setState(({ first, last }) => ({ first: first ?? now, previous: last, last: now, error: null }));
        } catch (error) {
          if (error.status === 401) onLocked();
          if (!ended) setState((before) => ({ ...before, previous: null, error }));
        }
      }
      if (!ended) timer = setTimeout(look, EVERY_S * 1000);
    }

    look();
    return () => {
      ended = true;
      clearTimeout(timer);
    };
  }, []);
  return state;
}
