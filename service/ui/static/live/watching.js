/**
 * Looks at `/metrics` every two seconds while the page is in sight. Three looks are kept: the first, the last and the one
 * before it. There is no history.
 */

import { useEffect, useState } from "../shared/html.js";
import { askMetrics } from "../shared/service.js";
import { parseExposition } from "./exposition.js";

export const EVERY_S = 2;

/** @typedef {{samples: import("./exposition.js").Samples, at: number}} Look `at` in seconds */

/**
 * @param {() => void} onLocked
 * @returns {{first: Look | null, previous: Look | null, last: Look | null, error: any}}
 */
export function useMetrics(onLocked) {
  const [state, setState] = useState(/** @type {any} */ ({ first: null, previous: null, last: null, error: null }));
  useEffect(() => {
    let ended = false;
    let timer = 0;

    async function look() {
      if (!document.hidden) {
        try {
          const samples = parseExposition(await askMetrics());
          const now = { samples, at: performance.now() / 1000 };
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
