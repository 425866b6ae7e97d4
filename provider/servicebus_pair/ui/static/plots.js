// Plots, as SVG that is drawn here.

import { clock, count, h } from "./elements.js";

const HEIGHT = 150;
const LEFT = 46;
const BOTTOM = 22;
const TOP = 8;

/** Messages by route over the last hours, a bar for each slot: the direct way below, the way round on top. */
export function sendsPlot(sends, now, width) {
  const slot = sends.slot_seconds;
  const last = Math.floor(now / slot) * slot;
  const first = last - sends.hours * 3600;
  const slots = Math.round((last - first) / slot) + 1;
  const most = Math.max(1, ...sends.slots.map(([, primary, backlog]) => primary + backlog));
  const top = nice(most);
  const step = (width - LEFT - 4) / slots;
  const high = HEIGHT - TOP - BOTTOM;
  const y = (value) => TOP + high - (value / top) * high;
  const bars = [];
  for (const [start, primary, backlog] of sends.slots) {
    const x = LEFT + Math.round((start - first) / slot) * step;
    const wide = Math.max(2, step - 1.5);
    const told = `${clock(start).textContent}: ${count(primary)} direct, ${count(backlog)} by the backlog`;
    bars.push(
      h("g", {}, h("title", {}, told),
        primary > 0 && h("rect", { class: "direct", x, y: y(primary), width: wide, height: Math.max(1, y(0) - y(primary)) }),
        backlog > 0 && h("rect", {
          class: "round", x, y: y(primary + backlog), width: wide, height: Math.max(1.5, y(primary) - y(primary + backlog)),
        })),
    );
  }
  const hours = [];
  const every = width < 420 ? 2 : 1;
  for (let hour = 0; hour <= sends.hours; hour += every) {
    const at = last - hour * 3600;
    const x = LEFT + ((at - first) / slot) * step + step / 2;
    hours.push(h("text", { x, y: HEIGHT - 6, "text-anchor": hour === 0 ? "end" : "middle" }, hour === 0 ? "now" : `−${hour} h`));
  }
  const lines = [0, top / 2, top].map((value) => [
    h("line", { x1: LEFT, x2: width, y1: y(value), y2: y(value) }),
    h("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, short(value)),
  ]);
  const summary = `Messages sent in the last ${sends.hours} hours: ${count(sends.primary)} direct, ${count(sends.backlog)} by the backlog.`;
  return h("svg", { class: "plot", viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": summary }, lines, bars, hours);
}

/** A bar of a part of something. */
export function bar(part, { kind = "direct" } = {}) {
  const wide = `${Math.max(part > 0 ? 1 : 0, Math.min(100, part * 100)).toFixed(1)}%`;
  return h("svg", { class: "bar", "aria-hidden": "true" },
    h("rect", { class: "track", width: "100%", height: "100%", rx: 3 }),
    h("rect", { class: kind, width: wide, height: "100%", rx: 3 }));
}

function nice(value) {
  const scale = 10 ** Math.floor(Math.log10(value));
  for (const factor of [1, 1.5, 2, 3, 4, 5, 6, 8, 10]) if (value <= factor * scale) return Math.max(2, factor * scale);
  return value;
}

function short(value) {
  if (value >= 1e6) return `${value / 1e6}M`;
  return value >= 1e4 ? `${value / 1e3}k` : count(value);
}
