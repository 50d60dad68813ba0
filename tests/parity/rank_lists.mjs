/** Ranks lists by an exported file: `node rank_lists.mjs FILE LISTS.json` with onnxruntime-node, or from a page. */

export async function rankLists(ort, model, lists) {
  const session = await ort.InferenceSession.create(model);
  const ranked = [];
  for (const inputs of lists) {
    const tensors = Object.entries(inputs).map(([name, rows]) => {
      const shape = [rows.length, rows[0].length];
      if (name === "categories") return [name, new ort.Tensor("string", rows.flat(), shape)];
      return [name, new ort.Tensor("float32", Float32Array.from(rows.flat(), (value) => value ?? NaN), shape)];
    });
    const outputs = await session.run(Object.fromEntries(tensors));
    ranked.push(Object.fromEntries(Object.entries(outputs).map(([name, { data }]) => [name, Array.from(data, Number)])));
  }
  return ranked;
}

if (globalThis.process?.argv.length === 4) {
  const { readFile } = await import("node:fs/promises");
  const ort = await import("onnxruntime-node");
  const [model, lists] = await Promise.all(process.argv.slice(2).map((path) => readFile(path)));
  console.log(JSON.stringify(await rankLists(ort.default, model, JSON.parse(lists))));
}
