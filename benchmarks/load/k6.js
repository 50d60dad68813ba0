// Load for benchmarks/load/k6.py: bodies from files, sent unchanged; what was answered goes to a file as JSON.
import http from 'k6/http';
import { Counter, Trend } from 'k6/metrics';

const bodies = __ENV.BODIES.split(',').map((path) => open(path, 'b'));
const latency = new Trend('answered', true);
const failed = new Counter('failed');
const params = { headers: { 'Content-Type': __ENV.CONTENT_TYPE }, timeout: '3s' };

export const options = {
  scenarios: { load: JSON.parse(__ENV.SCENARIO) },
  discardResponseBodies: true,
  summaryTrendStats: ['count', 'avg', 'p(50)', 'p(99)', 'p(99.9)', 'max'],
};

export default function () {
  const body = bodies[(__VU + __ITER) % bodies.length];
  const answer = http.post(__ENV.URL, body, params);
  if (answer.status === 200) {
    const took = answer.timings;
    latency.add(took.blocked + took.duration); // blocked: waiting for a connection and opening it
  } else {
    failed.add(1);
  }
}

export function handleSummary(data) {
  return { [__ENV.SUMMARY]: JSON.stringify(data) };
}
