/**
 * Lists that a reader pastes or drops: JSON in the forms of `POST /rerank`, arrays of objects or rows, and CSV.
 *
 * @typedef {import("./list.js").Value} Value
 * @typedef {object} Column of the bundle
 * @property {string} name
 * @property {string} kind
 * @property {boolean} required
 * @property {Value} default what stands where a request by name leaves it out
 * @property {string[] | number} categories their names, or, where the bundle's own data are missing, how many there are
 * @typedef {{names: string[], rows: Value[][], ids: string[] | null, context: any, leftOut: string[]}} Found
 */

import { shortened } from "../shared/format.js";
import { parseCsv } from "./csv.js";

const MISSING = new Set(["", "na", "n/a", "nan", "null", "none"]);

/**
 * @param {string} text
 * @param {Column[]} columns of the bundle
 * @param {number} most candidates that the service takes
 * @returns {Found}
 * @throws {Error} saying what is wrong, and where
 */
export function readList(text, columns, most) {
  const begin = text.trimStart()[0];
  if (begin === undefined) throw new Error("There is nothing to read.");
  const found = begin === "{" || begin === "[" ? fromJson(text, columns) : fromCsv(text, columns);
  if (found.rows.length === 0) throw new Error("The list has no candidates.");
  if (found.rows.length > most)
    throw new Error(`The list has ${found.rows.length} candidates; the service takes ${most}.`);
  if (found.names.length === 0) throw new Error(`None of its columns is a feature of the bundle: ${named(columns)}.`);
  return found;
}

/** @param {Column[]} columns */
const named = (columns) => shortened(columns.map(({ name }) => name).join(", "), 200);

/** @param {string} text @param {Column[]} columns @returns {Found} */
function fromJson(text, columns) {
  let body;
  try {
    body = JSON.parse(text);
  } catch (error) {
    throw new Error(`This is no JSON: ${/** @type {Error} */ (error).message}`);
  }
  const context = isObject(body) && isObject(body.context) ? body.context : null;
  if (Array.isArray(body)) {
    if (body.every(Array.isArray)) return fromRows(body, namesOf(columns), null, columns, context);
    return fromObjects(
      body.map((one) => (isObject(one?.features) ? one : { id: one?.id, features: one })),
      columns,
      context,
    );
  }
  if (Array.isArray(body?.candidates)) {
    const all = body.candidates;
    if (!all.every((one) => Array.isArray(one?.features))) return fromObjects(all, columns, context);
    return fromRows(
      all.map((one) => one.features),
      namesOf(columns),
      idsOf(all),
      columns,
      context,
    );
  }
  if (Array.isArray(body?.features)) {
    return fromRows(body.features, body.feature_names ?? namesOf(columns), body.ids ?? null, columns, context);
  }
  if (isObject(body?.columns)) {
    const arrays = Object.values(body.columns);
    if (!arrays.every((array) => Array.isArray(array) && array.length === arrays[0].length))
      throw new Error("columns are not arrays of one length.");
    const rows = (arrays[0] ?? []).map((_, at) => arrays.map((array) => array[at]));
    return fromRows(rows, Object.keys(body.columns), body.ids ?? null, columns, context);
  }
  throw new Error(
    "Neither candidates, features nor columns stand in it: paste a body of POST /rerank, or an array of objects.",
  );
}

/** @param {unknown} value @returns {value is Record<string, any>} */
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

/** @param {Column[]} columns */
const namesOf = (columns) => columns.map(({ name }) => name);

/** @param {any[]} candidates @returns {string[] | null} */
function idsOf(candidates) {
  const ids = candidates.map(({ id }) => id);
  return ids.every((id) => id !== undefined && id !== null) ? ids.map(String) : null;
}

/**
 * @param {any[]} candidates with features by name
 * @param {Column[]} columns
 * @param {Record<string, any> | null} context
 * @returns {Found}
 */
function fromObjects(candidates, columns, context) {
  candidates.forEach((one, at) => {
    if (!isObject(one?.features)) throw new Error(`Candidate ${at + 1} has no features by name.`);
  });
  const sent = new Set(candidates.flatMap(({ features }) => Object.keys(features)));
  const known = columns.filter(({ name }) => sent.has(name) || (context !== null && Object.hasOwn(context, name)));
  const rows = candidates.map(({ features }, at) =>
    known.map((column) => {
      const { name } = column;
      if (Object.hasOwn(features, name)) return checked(features[name], at, name);
      if (context !== null && Object.hasOwn(context, name)) return checked(context[name], at, name);
      if (!column.required) return column.default;
      const who = candidates[at].id === undefined ? "" : ` (${shortened(candidates[at].id, 60)})`;
      throw new Error(
        `Candidate ${at + 1}${who} lacks ${shortened(name, 60)}, which the bundle needs; null is allowed.`,
      );
    }),
  );
  const leftOut = [...sent].filter((name) => name !== "id" && !known.some((column) => column.name === name));
  return { names: namesOf(known), rows, ids: idsOf(candidates), context, leftOut };
}

/**
 * @param {any[]} rows
 * @param {any} names
 * @param {any} ids
 * @param {Column[]} columns
 * @param {any} context
 * @returns {Found}
 */
function fromRows(rows, names, ids, columns, context) {
  if (!Array.isArray(names) || new Set(names).size !== names.length)
    throw new Error("feature_names is no list of different names.");
  if (ids !== null && (!Array.isArray(ids) || ids.length !== rows.length))
    throw new Error("ids has not one id for each row.");
  rows.forEach((row, at) => {
    if (!Array.isArray(row) || row.length !== names.length) {
      const length = Array.isArray(row) ? `${row.length} values` : "no values";
      throw new Error(`Row ${at + 1} has ${length}; there are ${names.length} names.`);
    }
  });
  const known = new Set(namesOf(columns));
  const kept = names.flatMap((name, column) => (known.has(name) ? [column] : []));
  return {
    names: kept.map((column) => names[column]),
    rows: rows.map((row, at) => kept.map((column) => checked(row[column], at, names[column]))),
    ids: ids === null ? null : ids.map(String),
    context,
    leftOut: names.filter((name) => !known.has(name)).map(String),
  };
}

/** @param {any} value @param {number} row @param {string} name @returns {Value} */
function checked(value, row, name) {
  if (value === null || typeof value === "string" || Number.isFinite(value)) return value;
  const told = shortened(JSON.stringify(value), 40);
  throw new Error(`Candidate ${row + 1}, ${shortened(name, 60)}: ${told} is no number, category or null.`);
}

/** @param {string} text @param {Column[]} columns @returns {Found} */
function fromCsv(text, columns) {
  const { header, rows, delimiter } = parseCsv(text);
  const known = new Map(columns.map((column) => [column.name, column]));
  const idColumn = known.has("id") ? -1 : header.findIndex((name) => name.toLowerCase() === "id");
  const values = rows.map((row, at) =>
    row.map((value, column) => {
      const feature = known.get(header[column]);
      if (feature === undefined) return null;
      return feature.kind === "numeric" ? numberOf(value, delimiter, at, header[column]) : categoryOf(value, feature);
    }),
  );
  const found = fromRows(values, header, idColumn < 0 ? null : rows.map((row) => row[idColumn]), columns, null);
  return { ...found, leftOut: found.leftOut.filter((name) => name !== header[idColumn]) };
}

/** @param {string} text @param {string} delimiter @param {number} row @param {string} name @returns {number | null} */
function numberOf(text, delimiter, row, name) {
  const plain = text.trim();
  if (MISSING.has(plain.toLowerCase())) return null;
  const value = Number(delimiter === ";" ? plain.replace(",", ".") : plain);
  if (Number.isFinite(value)) return value;
  throw new Error(`Candidate ${row + 1}, ${shortened(name, 60)}: ${shortened(plain, 40)} is no number.`);
}

/**
 * @param {string} text
 * @param {Column} feature
 * @returns {string | null} a category may be called "none" or "NA": Namibia is
 */
function categoryOf(text, { categories }) {
  const plain = text.trim();
  if (Array.isArray(categories) && categories.includes(plain)) return plain;
  return MISSING.has(plain.toLowerCase()) ? null : plain;
}
