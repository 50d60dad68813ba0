import { readFileSync } from 'node:fs';
import { Configuration, RerankApi, type RerankRequest, type Value } from './generated/index.js';

interface Golden {
  names: string[];
  lists: Value[][][];
}

const [url, path] = process.argv.slice(2) as [string, string];
const { names, lists } = JSON.parse(readFileSync(path, 'utf-8')) as Golden;
const api = new RerankApi(new Configuration({ basePath: url, accessToken: 'k'.repeat(20) }));

async function rank(rerankRequest: RerankRequest) {
  const { scores, ranks } = await api.rerank({ rerankRequest });
  return { scores, ranks };
}

function byName(row: Value[]): { [name: string]: Value } {
  return Object.fromEntries(row.map((value, column) => [names[column], value]));
}

const answers = [];
for (const features of lists) {
  answers.push(await rank({ features, featureNames: names, rawScores: true }));
  answers.push(await rank({ candidates: features.map((row) => ({ features: byName(row) })), rawScores: true }));
}
console.log(JSON.stringify(answers));
