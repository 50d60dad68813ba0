/** Tables as text: RFC 4180, with commas, semicolons or tabs. */

const DELIMITERS = [",", ";", "\t"];

/**
 * @param {string} text
 * @returns {{header: string[], rows: string[][], delimiter: string}} rows as wide as the header
 * @throws {Error} naming the line that is not
 */
export function parseCsv(text) {
  const clean = text.replace(/^\ufeff/, "");
  const delimiter = delimiterOf(clean.split(/\r?\n/, 1)[0]);
  const lines = split(clean, delimiter).filter(({ values }) => values.length > 1 || values[0].trim() !== "");
  if (lines.length < 2) throw new Error("A table needs a line of names and a line for each candidate.");
  const [{ values: header }, ...rest] = lines;
  for (const { values, line } of rest) {
    if (values.length !== header.length) {
      throw new Error(`Line ${line} has ${values.length} values, and the first line names ${header.length}.`);
    }
  }
  return { header: header.map((name) => name.trim()), rows: rest.map(({ values }) => values), delimiter };
}

/** @param {string} line the first one */
function delimiterOf(line) {
  const counts = DELIMITERS.map((delimiter) => line.split(delimiter).length);
  return DELIMITERS[counts.indexOf(Math.max(...counts))];
}

/**
 * @param {string} text
 * @param {string} delimiter
 * @returns {{values: string[], line: number}[]} with the number of the line where each begins
 */
function split(text, delimiter) {
  const found = [];
  let values = [];
  let value = "";
  let quoted = false;
  let line = 1;
  let begins = 1;
  for (let at = 0; at < text.length; at += 1) {
    const character = text[at];
    if (character === "\n") line += 1;
    if (quoted) {
      if (character !== '"') value += character;
      else if (text[at + 1] === '"') value += text[++at];
      else quoted = false;
    } else if (character === '"' && value === "") {
      quoted = true;
    } else if (character === delimiter) {
      values.push(value);
      value = "";
    } else if (character === "\n") {
      found.push({ values: [...values, value.replace(/\r$/, "")], line: begins });
      [values, value, begins] = [[], "", line];
    } else {
      value += character;
    }
  }
  if (quoted) throw new Error(`The quotation marks that begin in line ${begins} never end.`);
  if (value !== "" || values.length) found.push({ values: [...values, value], line: begins });
  return found;
}
