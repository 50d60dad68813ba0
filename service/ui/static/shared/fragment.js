/** The address's fragment: which tab is shown, and what is shared by a link. Browsers send it to nobody. */

/** Characters of a link that every browser takes. */
export const MOST_CHARACTERS = 60_000;

/** A link may come from anyone: beyond so many bytes it is not unpacked. */
const MOST_BYTES = 16 * 2 ** 20;

/** @returns {{tab: string, shared: string}} */
export function readFragment() {
  const named = new URLSearchParams(location.hash.slice(1));
  return { tab: named.get("tab") ?? "", shared: named.get("list") ?? "" };
}

/** @param {string} tab @param {string} [shared] @returns {string} an address that opens there */
export function addressOf(tab, shared = "") {
  const named = new URLSearchParams({ tab });
  if (shared) named.set("list", shared);
  return `${location.href.split("#")[0]}#${named}`;
}

/** @param {string} tab */
export function showTabInAddress(tab) {
  history.replaceState(null, "", addressOf(tab));
}

/** @param {unknown} state any JSON @returns {Promise<string>} packed, of characters that an address may have */
export async function packed(state) {
  const stream = new Blob([JSON.stringify(state)]).stream().pipeThrough(new CompressionStream("deflate-raw"));
  const content = new Uint8Array(await new Response(stream).arrayBuffer());
  let text = "";
  for (let at = 0; at < content.length; at += 8192) text += String.fromCharCode(...content.subarray(at, at + 8192));
  return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/**
 * @param {string} text of {@link packed}
 * @returns {Promise<any>}
 * @throws {Error} for anything else
 */
export async function unpacked(text) {
  const content = Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
  const reader = new Blob([content]).stream().pipeThrough(new DecompressionStream("deflate-raw")).getReader();
  const pieces = [];
  let size = 0;
  for (let next = await reader.read(); !next.done; next = await reader.read()) {
    size += next.value.length;
    if (size > MOST_BYTES) {
      await reader.cancel();
      throw new Error(`it holds more than ${MOST_BYTES} bytes`);
    }
    pieces.push(next.value);
  }
  return JSON.parse(await new Blob(pieces).text());
}
