/**
 * A list of candidates that never changes: each edit makes another one, which shares all rows but one.
 *
 * @typedef {number | string | null} Value
 *
 * @typedef {object} List
 * @property {string[]} names of the columns
 * @property {Value[][]} rows one per candidate
 * @property {Value[][]} original the rows before all edits
 * @property {string[]} lines each row as JSON: a request of a thousand rows is joined, not written anew
 * @property {string[] | null} ids
 * @property {string} title
 * @property {number | null} golden place among the bundle's golden lists; null: a list of the reader's own
 * @property {Record<string, Value> | null} context what holds for the whole query
 * @property {ReadonlySet<string>} edits cells that differ from the original, `row:column`
 */

/**
 * @param {Object} parts
 * @param {string[]} parts.names
 * @param {Value[][]} parts.rows
 * @param {string[] | null} [parts.ids]
 * @param {string} parts.title
 * @param {number | null} [parts.golden]
 * @param {any} [parts.context]
 * @returns {List}
 */
export function makeList({ names, rows, ids = null, title, golden = null, context = null }) {
  const lines = rows.map((row) => JSON.stringify(row));
  return { names, rows, original: rows, lines, ids, title, golden, context, edits: new Set() };
}

/**
 * @param {List} list
 * @param {number} row
 * @param {number} column
 * @param {Value} value
 * @returns {List}
 */
export function edited(list, row, column, value) {
  if (Object.is(list.rows[row][column], value)) return list;
  const changed = list.rows[row].with(column, value);
  const edits = new Set(list.edits);
  if (Object.is(list.original[row][column], value)) edits.delete(`${row}:${column}`);
  else edits.add(`${row}:${column}`);
  return { ...list, rows: list.rows.with(row, changed), lines: list.lines.with(row, JSON.stringify(changed)), edits };
}

/**
 * @param {List} list
 * @param {string} name of a feature
 * @param {Value} value of every candidate, unless the context has one
 * @returns {List} with a column of this name: it ranks as before, and each value can be changed
 */
export function withFeature(list, name, value) {
  if (list.names.includes(name)) return list;
  const own = list.context !== null && Object.hasOwn(list.context, name) ? list.context[name] : value;
  const add = (rows) => rows.map((row) => [...row, own]);
  const rows = add(list.rows);
  return {
    ...list,
    names: [...list.names, name],
    rows,
    original: add(list.original),
    lines: rows.map((row) => JSON.stringify(row)),
  };
}

/**
 * @param {List} list
 * @param {number | null} [row] null: all of them
 * @returns {List} with the values that it had at first
 */
export function restored(list, row = null) {
  let back = list;
  for (const [at, column] of cells(list)) {
    if (row === null || at === row) back = edited(back, at, column, list.original[at][column]);
  }
  return back;
}

/** @param {List} list @returns {[number, number][]} row and column of each edit */
export function cells(list) {
  return [...list.edits].map((edit) => /** @type {[number, number]} */ (edit.split(":").map(Number)));
}

/** @param {List} list @param {number} index @returns {string} what a candidate is called */
export const nameOf = (list, index) => list.ids?.[index] ?? `candidate ${index + 1}`;

/**
 * @param {List} list
 * @param {Record<string, unknown>} options further fields of the request; null: left out
 * @returns {string} the body of `POST /rerank`
 */
export function requestBody(list, options) {
  const fields = { feature_names: list.names, ids: list.ids, context: list.context, ...options };
  const told = Object.entries(fields).filter(([, value]) => value !== null && value !== undefined);
  const others = told.map(([name, value]) => `${JSON.stringify(name)}:${JSON.stringify(value)}`);
  return `{"features":[${list.lines.join(",")}],${others.join(",")}}`;
}
