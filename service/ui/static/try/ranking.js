/**
 * The list at hand and its newest answer.
 *
 * @typedef {object} Work
 * @property {import("./list.js").List | null} list
 * @property {any} answer of the service, for the list as it was a moment ago; null: none yet
 * @property {any} baseline the answer for the list without edits; null: none
 * @property {any} error why the newest list has no answer
 * @property {boolean} busy whether an answer is on its way
 * @property {number} selected index of a candidate
 * @property {number | null} pinned index of one to compare with
 * @property {string} before see places.js
 * @property {string} strategy
 * @property {number | null} specialist
 */

import { useCallback, useEffect, useMemo, useState } from "../shared/html.js";
import { latest } from "../shared/latest.js";
import { askRanking } from "../shared/service.js";
import { requestBody } from "./list.js";

/** @type {Work} */
const EMPTY = {
  list: null,
  answer: null,
  baseline: null,
  error: null,
  busy: false,
  selected: 0,
  pinned: null,
  before: "first",
  strategy: "auto",
  specialist: null,
};

/**
 * @param {any} info of `GET /info`; null: not known yet
 * @param {() => void} onLocked called where a key is wanted
 * @returns {{work: Work, change: (patch: Partial<Work>) => void, rank: () => void}}
 */
export function useRanking(info, onLocked) {
  const [work, setWork] = useState(EMPTY);
  const change = useCallback((patch) => setWork((before) => ({ ...before, ...patch })), []);

  const ranker = useMemo(
    () =>
      latest(
        ({ body }) => askRanking(body),
        ({ value, answer, error, more }) => {
          if (error?.status === 401) onLocked();
          setWork((now) => (now.list?.original === value.list.original ? { ...now, ...outcome(value, answer, error), busy: more } : now));
        },
      ),
    [],
  );

  const { list, strategy, specialist } = work;
  const [model, version] = [info?.model, info?.version];
  const rank = useCallback(() => {
    if (!list || !model) return;
    setWork((now) => ({ ...now, busy: true }));
    const named = { model, version, strategy, specialist };
    ranker.ask({ list, body: requestBody(list, named) });
  }, [list, model, version, strategy, specialist]);

  useEffect(rank, [rank]);
  return { work, change, rank };
}

/** @param {any} value what was asked @param {any} answer @param {any} error @returns {Partial<Work>} */
function outcome({ list }, answer, error) {
  if (error) return { error };
  return { answer, error: null, ...(list.edits.size === 0 && { baseline: answer }) };
}
