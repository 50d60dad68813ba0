/**
 * Before and after, side by side, with lines between the places. Long lists are shown in parts: a browser stays quick.
 */

import { html, useEffect, useMemo, useState } from "../shared/html.js";
import { number, percent, shortened } from "../shared/format.js";
import { nameOf } from "./list.js";
import { moved, movedInWords, placesOf } from "./places.js";

/** @typedef {import("./places.js").Place} Place */

/** Rows that are drawn at a time. */
const PART = 50;

/** Height of a row, as in try.css. */
const ROW = 40;

/** Keys that choose another candidate, and how far they go. */
const STEPS = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity };

/**
 * @param {object} props
 * @param {import("./list.js").List} props.list
 * @param {any} props.answer
 * @param {any} props.baseline
 * @param {import("./places.js").Before} props.before
 * @param {boolean} props.weighted whether weights are not the default ones
 * @param {number} props.selected index of a candidate
 * @param {(index: number) => void} props.onSelect
 * @param {boolean} props.busy
 */
export function Order({ list, answer, baseline, before, weighted, selected, onSelect, busy }) {
  const places = useMemo(() => placesOf(answer, baseline, before), [answer, baseline, before]);
  const [start, setStart] = useState(0);
  const length = places.byRank.length;
  const first = Math.max(0, Math.min(start, PART * Math.floor((length - 1) / PART)));
  const chosen = places.byIndex[selected];
  useEffect(() => setStart(0), [list.original]);

  /** @param {number} rank from 1 */
  function choose(rank) {
    const place = places.byRank[Math.min(Math.max(rank, 1), length) - 1];
    setStart(PART * Math.floor((place.rank - 1) / PART));
    onSelect(place.index);
  }

  /** @param {KeyboardEvent} event */
  function press(event) {
    const step = STEPS[event.key];
    if (step === undefined) return;
    event.preventDefault();
    if (length) choose((chosen?.rank ?? 1) + step);
  }

  const right = places.byRank.slice(first, first + PART);
  const left = places.byBefore.slice(first, first + PART);
  const most = Math.max(...places.byRank.map(figureOf));
  const title = { input: "As sent", first: "First stage", edits: weighted ? "Before my changes" : "Before my edits" };
  return html`<div class=${`order ${busy ? "busy" : ""}`}>
    <div class="columns" style=${{ display: length > 0 ? undefined : "none" }}>
      <h3 id="before-title">${title[before]}</h3>
      <span></span>
      <h3 id="after-title">Now: ${answer.route.strategy}${
        right.some(({ probability }) => probability !== null) && html` <span class="unit">probability</span>`
      }</h3>
      <ol class="places" aria-hidden="true">
        ${left.map(
          (place) => html`<li
            key=${place.index}
            class=${kindOf(place, selected)}
            onClick=${() => onSelect(place.index)}
          >
            <span class="rank">${place.was}</span>
            <span class="name"><bdi>${shortened(nameOf(list, place.index), 48)}</bdi></span>
            <span class="score">${scoreBefore(place, before)}</span>
          </li>`,
        )}
      </ol>
      <${Lines} left=${left} right=${right} first=${first} selected=${selected} />
      <ol
        class="places now"
        role="listbox"
        tabindex="0"
        aria-labelledby="after-title"
        aria-activedescendant=${right.some(({ index }) => index === selected) ? `place-${selected}` : undefined}
        aria-busy=${busy}
        onKeyDown=${press}
      >
        ${right.map(
          (place) => html`<li
            key=${place.index}
            id=${`place-${place.index}`}
            role="option"
            aria-selected=${place.index === selected}
            aria-posinset=${place.rank}
            aria-setsize=${length}
            class=${kindOf(place, selected)}
            onClick=${() => onSelect(place.index)}
          >
            <span class="rank">${place.rank}</span>
            <span class="name">
              <bdi>${shortened(nameOf(list, place.index), 48)}</bdi>
              ${place.rules.length > 0 && html` <span class="rules"><bdi>${place.rules.join(", ")}</bdi></span>`}
            </span>
            <span class="moved">
              <span aria-hidden="true">${moved(place)}</span>
              <span class="unseen">${movedInWords(place)}</span>
            </span>
            <span class="share" style=${{ "--share": most > 0 ? figureOf(place) / most : 0 }}>
              <span class="score">${scoreNow(place)}</span>
            </span>
          </li>`,
        )}
      </ol>
    </div>
    ${length > PART && html`<${Parts} length=${length} first=${first} onStart=${setStart} />`}
    ${length === 0 && html`<p class="empty">Every candidate is left out.</p>`}
    <p class="said" role="status">
      <bdi>${shortened(nameOf(list, selected), 48)}</bdi>:
      ${chosen ? ` place ${chosen.rank} of ${length}, ${movedInWords(chosen)}` : " left out"}.
    </p>
  </div>`;
}

/** @param {Place} place @param {number} selected */
function kindOf(place, selected) {
  const way = place.rank < place.was ? "up" : place.rank > place.was ? "down" : "same";
  return `place ${way} ${place.index === selected ? "selected" : ""}`;
}

/** @param {Place} place */
const figureOf = ({ probability, share }) => probability ?? share ?? 0;

/** @param {Place} place */
function scoreNow({ probability, share }) {
  if (probability === null) return share === null ? "below the cutoff" : percent(share);
  return html`<span class="unseen">probability </span>${percent(probability)}`;
}

/** @param {Place} place @param {import("./places.js").Before} before */
function scoreBefore(place, before) {
  if (before === "edits") return percent(place.scoreBefore);
  return place.scoreBefore === null ? "" : number(place.scoreBefore, 3);
}

/**
 * A line for each candidate in sight.
 *
 * @param {{left: Place[], right: Place[], first: number, selected: number}} props
 */
function Lines({ left, right, first, selected }) {
  const shown = new Map([...left, ...right].map((place) => [place.index, place]));
  const height = ROW * Math.max(left.length, right.length);
  const y = (rank) => Math.min(Math.max(ROW * (rank - 1 - first) + ROW / 2, -ROW), height + ROW);
  const all = [...shown.values()].sort(
    (one, other) => Number(one.index === selected) - Number(other.index === selected),
  );
  return html`<svg
    class="lines"
    viewBox=${`0 0 100 ${height}`}
    height=${height}
    preserveAspectRatio="none"
    aria-hidden="true"
    focusable="false"
  >
    ${all.map((place) => {
      const [from, to] = [y(place.before), y(place.rank)];
      const path = `M 0 ${from} C 45 ${from} 55 ${to} 100 ${to}`;
      const kind = kindOf(place, selected);
      return html`<path key=${place.index} d=${path} class=${kind} vector-effect="non-scaling-stroke" />`;
    })}
  </svg>`;
}

/**
 * Which part of a long list is shown.
 *
 * @param {{length: number, first: number, onStart: (start: number) => void}} props
 */
function Parts({ length, first, onStart }) {
  const last = Math.min(first + PART, length);
  return html`<nav class="parts" aria-label="Part of the list">
    <button type="button" disabled=${first === 0} onClick=${() => onStart(first - PART)}>Before</button>
    <span>places ${first + 1} to ${last} of ${length}</span>
    <button type="button" disabled=${last === length} onClick=${() => onStart(first + PART)}>After</button>
  </nav>`;
}
