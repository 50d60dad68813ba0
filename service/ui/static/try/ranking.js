/**
 * The list at hand and its newest answer.
 *
 * @typedef {object} Work
 * @property {import("./list.js").List | null} list
 * @property {any} answer of the service, for the list as it was a moment ago; null: none yet
 * @property {any} baseline the answer for the list without edits, by the same ranker; null: none
 * @property {any} error why the newest list has no answer
 * @property {boolean} busy whether an answer is on its way
 * @property {number} selected index of a candidate
 * @property {number | null} pinned index of one to compare with
 * @property {string} before see places.js
 * @property {string} strategy
 * @property {number | null} specialist
 * @property {Record<string, number> | null} weights of goals that have not the default one
 * @property {number | null} minProbability candidates below it are left out; null: none
 */

import { useCallback, useEffect, useMemo, useRef, useState } from "../shared/html.js";
import { latest } from "../shared/latest.js";
import { askRanking } from "../shared/service.js";
import { requestBody, restored } from "./list.js";

/** @type {Work} */
const EMPTY = {
  list: null,
  answer: null,
  error: null,
  busy: false,
  selected: 0,
  pinned: null,
  before: "first",
  strategy: "auto",
  specialist: null,
  weights: null,
  minProbability: null,
};

/**
 * What an unedited list was answered with default weights, and who was asked: an answer of another ranker says nothing
 * of what the changes did.
 *
 * @typedef {{original: any[][], who: string, answer: any}} Unedited
 */

/**
 * @param {import("./list.js").List | null} list
 * @returns {Partial<Work>} what changes with another list; nothing that was said of the former one stays
 */
export const withList = (list) => ({ list, answer: null, error: null, selected: 0, pinned: null });

/**
 * @param {any} info of `GET /info`
 * @param {Work} work
 * @returns {object} fields of a request for the list at hand, besides the list
 */
export function fieldsOf(info, { strategy, specialist, weights, minProbability }) {
  return {
    ...rankerOf(info, strategy, specialist),
    weights: info.goals && weights,
    min_probability: info.probability && minProbability,
  };
}

/** @param {any} info of `GET /info` @param {string} strategy @param {number | null} specialist */
const rankerOf = ({ model, version }, strategy, specialist) => ({ model, version, strategy, specialist });

/**
 * @param {any} info of `GET /info`; null: not known yet
 * @param {() => void} onLocked called where a key is wanted
 * @returns {{work: Work, change: (patch: Partial<Work>) => void, rank: () => void}}
 */
export function useRanking(info, onLocked) {
  const [work, setWork] = useState(EMPTY);
  const [unedited, setUnedited] = useState(/** @type {Unedited | null} */ (null));
  const change = useCallback((patch) => setWork((before) => ({ ...before, ...patch })), []);

  const ranker = useMemo(
    () =>
      latest(
        ({ body }) => askRanking(body),
        ({ value, answer, error, more }) => {
          if (error?.status === 401) onLocked();
          if (answer && value.plain) setUnedited({ original: value.list.original, who: value.who, answer });
          setWork((now) =>
            now.list?.original === value.list.original ? { ...now, ...outcome(answer, error), busy: more } : now,
          );
        },
      ),
    [],
  );

  const { list, strategy, specialist, weights, minProbability, answer, busy } = work;
  const [model, version] = [info?.model, info?.version];
  const probabilities = info?.probability ? true : null;
  const who = JSON.stringify([model, version, strategy, specialist]);
  const rank = useCallback(() => {
    if (!list || !model) return;
    setWork((now) => ({ ...now, busy: true }));
    const body = requestBody(list, { ...fieldsOf(info, work), probabilities });
    ranker({ list, who, body, plain: list.edits.size === 0 && weights === null && minProbability === null });
  }, [list, model, version, strategy, specialist, weights, minProbability]);

  useEffect(rank, [rank]);

  const baseline = unedited && unedited.original === list?.original && unedited.who === who ? unedited.answer : null;
  const asking = useRef(/** @type {{original: any, who: string} | null} */ (null));
  useEffect(() => {
    // a link came with changes, or they are older than the choice of this ranker: it never ranked the list without them
    if (!list || !answer || busy || baseline || (list.edits.size === 0 && weights === null)) return;
    const { original } = list;
    if (asking.current?.original === original && asking.current.who === who) return;
    const mine = { original, who };
    asking.current = mine;

    /** @param {any} found null: it failed, and the next answer asks again */
    const keep = (found) => {
      if (asking.current !== mine) return; // another one is wanted by now
      asking.current = null;
      if (found) setUnedited({ ...mine, answer: found });
    };
    const body = requestBody(restored(list), { ...rankerOf(info, strategy, specialist), probabilities });
    askRanking(body).then(keep, () => keep(null));
  }, [answer, busy, baseline, who]);
  return { work: { ...work, baseline }, change, rank };
}

/** @param {any} answer @param {any} error @returns {Partial<Work>} */
const outcome = (answer, error) => (error ? { error } : { answer, error: null });
