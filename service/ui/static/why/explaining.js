/** Asks for explanations, one at a time: of those that were wanted meanwhile, the newest. */

import { useEffect, useMemo, useState } from "../shared/html.js";
import { latest } from "../shared/latest.js";
import { askExplanation } from "../shared/service.js";
import { requestBody } from "../try/list.js";

/**
 * @param {any} info of `GET /info`
 * @param {import("../try/ranking.js").Work} work
 * @param {() => void} onLocked
 * @returns {{explained: any, error: any, busy: boolean, again: () => void}} `explained` is null until there is one
 */
export function useExplanation(info, { list, selected, pinned, strategy, specialist }, onLocked) {
  const [state, setState] = useState({ explained: null, error: null, busy: false });
  const explainer = useMemo(
    () =>
      latest(askExplanation, ({ answer, error, more }) => {
        if (error?.status === 401) onLocked();
        setState(error ? { explained: null, error, busy: more } : { explained: answer, error: null, busy: more });
      }),
    [],
  );
  useEffect(() => () => explainer.end(), []);

  const [asked, setAsked] = useState(0);
  useEffect(() => {
    if (!list) return;
    const against = pinned !== null && pinned !== selected ? pinned : null;
    const { model, version } = info;
    setState((before) => ({ ...before, busy: true }));
    explainer.ask(requestBody(list, { model, version, strategy, specialist, candidate: selected, against }));
  }, [list, selected, pinned, strategy, specialist, info.model, info.version, asked]);
  return { ...state, again: () => setAsked((n) => n + 1) };
}

/** @param {any} error @returns {boolean} whether the service explains nothing, as it is set up */
export const isOff = (error) => error.status === 404 && error.type.endsWith(":not-found");
