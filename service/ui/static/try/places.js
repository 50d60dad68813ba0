/**
 * Places of candidates before and after, from answers of the service.
 *
 * @typedef {"input" | "first" | "edits"} Before what an order is compared with
 * @typedef {object} Place of one candidate
 * @property {number} index
 * @property {number} rank now
 * @property {number} was rank before
 * @property {number} before its place among those that have one now, from 1: rules exclude others
 * @property {number | null} probability null: the bundle has none
 * @property {number | null} share of the list; null: the candidate was not scored
 * @property {number | null} scoreBefore
 * @property {string} stage that ordered it
 * @property {string[]} rules that touched it
 */

/** @type {Record<Before, string>} */
export const BEFORE = { input: "the order as sent", first: "the first stage", edits: "before my edits" };

/**
 * @param {any} answer
 * @param {any} baseline the answer without edits; null: there is none
 * @returns {Before[]} what the answer can be compared with
 */
export function comparable(answer, baseline) {
  const first =
    answer.results.some((one) => one.first_stage_rank !== null) && answer.meta.stage_reached === "second_stage";
  return /** @type {Before[]} */ (["input", ...(first ? ["first"] : []), ...(baseline ? ["edits"] : [])]);
}

/**
 * @param {any} answer
 * @param {any} baseline
 * @param {Before} before
 * @returns {{byRank: Place[], byBefore: Place[], byIndex: (Place | undefined)[]}}
 */
export function placesOf(answer, baseline, before) {
  const byRank = answer.results.map((one) => ({
    index: one.index,
    rank: one.rank,
    was: {
      input: one.index + 1,
      first: one.first_stage_rank ?? one.index + 1,
      edits: baseline?.ranks[one.index] ?? one.rank,
    }[before],
    before: 0,
    probability: one.probability ?? null,
    share: shareOf(one.relevance_score),
    scoreBefore: {
      input: null,
      first: one.first_stage_score,
      edits: baseline ? (baseline.probabilities?.[one.index] ?? shareOf(baseline.scores[one.index])) : null,
    }[before],
    stage: one.stage,
    rules: one.rules ?? [],
  }));
  const byBefore = [...byRank].sort((one, other) => one.was - other.was);
  byBefore.forEach((place, at) => (place.before = at + 1));
  const byIndex = new Array(answer.ranks.length); // a candidate that a rule excludes has no place
  for (const place of byRank) byIndex[place.index] = place;
  return { byRank, byBefore, byIndex };
}

/** @param {number} score @returns {number | null} the share; null for a number that stands for a place */
function shareOf(score) {
  return score < 0 ? null : score;
}

/** @param {Place} place @returns {string} how far it moved, for a narrow column */
export function moved({ rank, was }) {
  if (rank === was) return "=";
  return rank < was ? `▲ ${was - rank}` : `▼ ${rank - was}`;
}

/** @param {Place} place @returns {string} the same in words */
export function movedInWords({ rank, was }) {
  if (rank === was) return "same place as before";
  return rank < was ? `up from ${was}` : `down from ${was}`;
}
