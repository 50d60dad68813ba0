/** A histogram, drawn by uPlot; its numbers are in the text beside it. */

import { html, useEffect, useRef } from "../shared/html.js";

/**
 * @param {object} props
 * @param {import("./figures.js").Buckets} props.buckets
 * @param {{at: number, label: string}[]} props.marks vertical lines
 * @param {string} props.label what a screen reader says of it
 */
export function Histogram({ buckets, marks, label }) {
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  const plot = useRef(/** @type {any} */ (null));
  const newest = useRef({ buckets, marks });
  newest.current = { buckets, marks };

  useEffect(() => {
    let ended = false;
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const observer = new ResizeObserver(() => plot.current?.setSize(sizeOf(place.current)));

    async function draw() {
      const { uPlot: Plot } = await import("../vendor/uplot.js");
      if (ended || !place.current) return;
      plot.current?.destroy();
      plot.current = new Plot(
        optionsOf(Plot, place.current, () => newest.current.marks),
        dataOf(newest.current.buckets),
        place.current,
      );
    }

    draw();
    dark.addEventListener("change", draw);
    observer.observe(/** @type {HTMLElement} */ (place.current));
    return () => {
      ended = true;
      dark.removeEventListener("change", draw);
      observer.disconnect();
      plot.current?.destroy();
    };
  }, []);

  useEffect(() => {
    plot.current?.setData(dataOf(buckets));
  }, [buckets]);

  return html`<div class="plot" role="img" aria-label=${label} ref=${place}></div>`;
}

/**
 * @param {import("./figures.js").Buckets} buckets
 * @returns {[number[], number[]]} middles of the buckets, and shares
 */
function dataOf({ bounds, counts }) {
  const all = counts.reduce((sum, count) => sum + count, 0) || 1;
  const width = bounds.length > 2 ? bounds[1] - bounds[0] : 1;
  const middles = bounds.map((bound, at) => (Number.isFinite(bound) ? bound : bounds[at - 1] + width) - width / 2);
  return [middles, counts.map((count) => (100 * count) / all)];
}

/** @param {HTMLElement | null} place */
const sizeOf = (place) => ({ width: Math.max(200, place?.clientWidth ?? 0), height: 180 });

/** @param {any} Plot @param {HTMLElement} place @param {() => {at: number, label: string}[]} marks @returns {object} */
function optionsOf(Plot, place, marks) {
  const style = getComputedStyle(place);
  const [ink, rule, bar, mark, panel] = ["--soft", "--rule", "--c1", "--c2", "--panel"].map((name) =>
    style.getPropertyValue(name).trim(),
  );
  const axis = {
    stroke: ink,
    grid: { stroke: rule, width: 1 },
    ticks: { stroke: rule, width: 1 },
    font: "12px system-ui, sans-serif",
  };
  return {
    ...sizeOf(place),
    scales: { x: { time: false }, y: { range: (_, __, most) => [0, Math.max(most, 1)] } },
    axes: [axis, { ...axis, size: 56, values: (_, shares) => shares.map((share) => `${share} %`) }],
    legend: { show: false },
    cursor: { show: false },
    series: [
      {},
      { fill: bar, stroke: bar, width: 0, paths: Plot.paths.bars({ size: [0.9, 60] }), points: { show: false } },
    ],
    hooks: { draw: [(plot) => drawMarks(plot, marks(), mark, panel)] },
  };
}

/** @param {any} plot @param {{at: number, label: string}[]} marks @param {string} colour @param {string} behind */
function drawMarks(plot, marks, colour, behind) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.fillStyle = colour;
  ctx.lineJoin = "round";
  ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
  let line = 0;
  for (const { at, label } of marks) {
    const x = plot.valToPos(at, "x", true);
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.strokeStyle = colour;
    ctx.lineWidth = devicePixelRatio;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    const left = x + ctx.measureText(label).width + 8 > bbox.left + bbox.width;
    ctx.textAlign = left ? "right" : "left";
    // a line of its own for each label: two marks may be close
    const place = [x + (left ? -4 : 4) * devicePixelRatio, bbox.top + (11 + 14 * line) * devicePixelRatio];
    ctx.strokeStyle = behind;
    ctx.lineWidth = 4 * devicePixelRatio;
    ctx.strokeText(label, ...place); // or a bar behind it would hide it
    ctx.fillText(label, ...place);
    line += 1;
  }
  ctx.restore();
}
