/** One request at a time: while it is on its way, only the newest of those that come waits. */

/**
 * @template V, A
 * @param {(value: V) => Promise<A>} run
 * @param {(outcome: {value: V, answer?: A, error?: any, more: boolean}) => void} done told of each that was run,
 *   and whether another one is on its way
 * @returns {(value: V) => void} asks
 */
export function latest(run, done) {
  let busy = false;
  /** @type {{value: V} | null} */
  let waiting = null;

  /** @param {V} value */
  async function start(value) {
    busy = true;
    let outcome;
    try {
      outcome = { value, answer: await run(value) };
    } catch (error) {
      outcome = { value, error };
    }
    busy = false;
    const next = waiting;
    waiting = null;
    if (next) start(next.value);
    done({ ...outcome, more: next !== null });
  }

  return (value) => {
    if (busy) waiting = { value };
    else start(value);
  };
}
