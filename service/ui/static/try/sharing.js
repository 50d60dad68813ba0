/**
 * What a link holds: a golden list by its number, or the whole list, and the edits.
 *
 * @typedef {import("./list.js").List} List
 * @typedef {import("./ranking.js").Work} Work
 * @typedef {Pick<Work, "list" | "strategy" | "specialist" | "weights" | "minProbability" | "selected">} Shared
 */

import { cells, edited, makeList } from "./list.js";

/**
 * @param {Shared} work
 * @param {{model: string, version: string}} bundle
 * @returns {object} JSON
 */
export function toState({ list, strategy, specialist, weights, minProbability, selected }, { model, version }) {
  const edits = cells(list).map(([row, column]) => [row, column, list.rows[row][column]]);
  const { names, original, ids, title, context } = list;
  const whole = list.golden === null ? { names, rows: original, ids, title, context } : null;
  const options = { strategy, specialist, weights, minProbability, selected };
  return { model, version, golden: list.golden, whole, edits, ...options };
}

/**
 * @param {any} state what a link held: it may come from anyone
 * @param {(number: number) => List | null} goldenList of the bundle
 * @returns {Shared}
 * @throws {Error} saying what is wrong with it
 */
export function fromState(state, goldenList) {
  if (typeof state !== "object" || state === null) throw new Error("it holds no list");
  const list = state.whole ? wholeList(state.whole) : goldenList(Number(state.golden));
  if (list === null) throw new Error(`the bundle has no golden list ${Number(state.golden) + 1}`);
  const edits = Array.isArray(state.edits) ? state.edits : [];
  let current = list;
  for (const [row, column, value] of edits) {
    if (!(list.rows[row]?.length > column) || !isValue(value))
      throw new Error("it changes a cell that the list has not");
    current = edited(current, row, column, value);
  }
  return {
    list: current,
    strategy: typeof state.strategy === "string" ? state.strategy : "auto",
    specialist: Number.isInteger(state.specialist) ? state.specialist : null,
    weights: areWeights(state.weights) ? state.weights : null,
    minProbability: isWithin(state.minProbability, 1) ? state.minProbability : null,
    selected: Number.isInteger(state.selected) && list.rows[state.selected] ? state.selected : 0,
  };
}

/** @param {any} value */
const isValue = (value) => value === null || typeof value === "string" || Number.isFinite(value);

/** @param {any} value @param {number} most */
const isWithin = (value, most) => Number.isFinite(value) && value >= 0 && value <= most;

/** @param {any} weights */
const areWeights = (weights) =>
  typeof weights === "object" && weights !== null && Object.values(weights).every((one) => isWithin(one, Infinity));

/** @param {any} texts */
const areTexts = (texts) => Array.isArray(texts) && texts.every((text) => typeof text === "string");

/** @param {any} whole @returns {List} */
function wholeList({ names, rows, ids, title, context }) {
  const fits = (row) => Array.isArray(row) && row.length === names.length && row.every(isValue);
  if (!areTexts(names) || !Array.isArray(rows) || rows.length === 0 || !rows.every(fits))
    throw new Error("its list has no whole rows");
  if (ids !== null && !(areTexts(ids) && ids.length === rows.length))
    throw new Error("its list has not one id for each row");
  const plain = typeof context === "object" && !Array.isArray(context) ? context : null;
  return makeList({ names, rows, ids, title: String(title), context: plain });
}
