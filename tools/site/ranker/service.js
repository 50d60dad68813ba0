/**
 * What the page asks the service, answered in the browser: until ONNX Runtime is here, golden lists by the answers that
 * were written with the site, and then every list by the exported files.
 */

/** `bundle.json`, as `tools/site/ranker_page.py` writes it. */
export const bundle = await (await fetch("bundle.json")).json();

/** @type {Record<string, any> | null} an open file by strategy; null: not here yet */
let sessions = null;
let opening = /** @type {Promise<void> | null} */ (null);
let ort;

/** @returns {Promise<void>} ends once every list can be ranked; begins anew after a failure */
export function openFiles() {
  opening ??= open().catch((error) => {
    opening = null;
    throw Object.assign(error, { status: 0, title: "ONNX Runtime was not loaded", detail: error.message });
  });
  return opening;
}

async function open() {
  ort = await import("../onnxruntime/ort.wasm.bundle.min.mjs");
  const response = await fetch("onnxruntime/ort-wasm-simd-threaded.wasm");
  if (!response.ok) throw new Error(`${response.url}: ${response.status}`);
  ort.env.wasm.numThreads = 1; // more need headers that a static site has not
  ort.env.wasm.wasmBinary = await response.arrayBuffer(); // where it fetches for itself, it never does so again
  const opened = {};
  for (const strategy of Object.keys(bundle.answers)) {
    opened[strategy] = await ort.InferenceSession.create(`${strategy}.onnx`);
    await opened[strategy].run(inputsOf(bundle.shown.golden[0].rows)); // the first run takes far longer than others
  }
  sessions = opened;
}

/** @param {string} body of `POST /rerank` @returns {Promise<any>} its answer */
export async function askRanking(body) {
  const request = JSON.parse(body);
  const strategy = request.strategy === "auto" ? bundle.info.default_strategy : request.strategy;
  const rows = JSON.stringify(request.features);
  const golden = bundle.shown.golden.findIndex((list) => JSON.stringify(list.rows) === rows);
  if (!sessions && golden >= 0) return answerOf(bundle.answers[strategy][golden], request, strategy, null);
  await openFiles();
  const inputs = inputsOf(request.features);
  const began = performance.now();
  const outputs = await sessions[strategy].run(inputs);
  const took = performance.now() - began;
  const ranked = Object.entries(outputs).map(([name, { data }]) => [name, Array.from(data, Number)]);
  return answerOf(Object.fromEntries(ranked), request, strategy, took);
}

/** @param {(number | string | null)[][]} rows in schema order */
function inputsOf(rows) {
  const part = (kind) => {
    const places = bundle.shown.features.flatMap((feature, at) => (feature.kind === kind ? [at] : []));
    return [rows.flatMap((row) => places.map((at) => row[at])), [rows.length, places.length]];
  };
  const [numbers, numeric] = part("numeric");
  const [texts, categorical] = part("categorical");
  return {
    numbers: new ort.Tensor("float32", Float32Array.from(numbers, (value) => value ?? NaN), numeric),
    categories: new ort.Tensor("string", texts.map((text) => text ?? ""), categorical),
  };
}

/**
 * @param {{order: number[], relevance: number[], first_stage_scores: number[]}} ranked
 * @param {any} request
 * @param {string} strategy
 * @param {number | null} total milliseconds; null: the answer was written with the site
 */
function answerOf({ order, relevance, first_stage_scores: first }, request, strategy, total) {
  const stage = strategy === "first_stage" ? "first" : "second";
  const firstOrder = first.map((_, at) => at).sort((one, other) => first[other] - first[one]);
  const results = order.map((index, at) => ({
    index,
    id: request.ids[index],
    rank: at + 1,
    relevance_score: relevance[index],
    stage,
    first_stage_score: first[index],
    first_stage_rank: firstOrder.indexOf(index) + 1,
  }));
  return {
    results,
    scores: relevance,
    ranks: relevance.map((_, index) => order.indexOf(index) + 1),
    route: { strategy, specialist: null, confidence: null, decided_by: request.strategy === "auto" ? "bundle" : "you" },
    meta: { status: "ok", stage_reached: `${stage}_stage`, reason: null, ignored: [], timings_ms: { total } },
  };
}
