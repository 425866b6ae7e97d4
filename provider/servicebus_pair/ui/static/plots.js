// Charts drawn as SVG.

import { formatNumber, h, localTime } from "./elements.js";

const HEIGHT = 150;
const LEFT = 46;
const BOTTOM = 22;
const TOP = 8;

/** Stacked bar chart of the messages sent in the last hours: primary below, backlog on top. */
export function sendsPlot(sends, now, width) {
  const slot = sends.slot_seconds;
  const last = Math.floor(now / slot) * slot;
  const first = last - sends.hours * 3600;
  const slots = Math.round((last - first) / slot) + 1;
  const top = niceMaximum(Math.max(1, ...sends.slots.map(([, primary, backlog]) => primary + backlog)));
  const step = (width - LEFT - 4) / slots;
  const plotHeight = HEIGHT - TOP - BOTTOM;
  const y = (value) => TOP + plotHeight - (value / top) * plotHeight;
  const bars = sends.slots.map(([start, primary, backlog]) => {
    const x = LEFT + Math.round((start - first) / slot) * step;
    const barWidth = Math.max(2, step - 1.5);
    const tooltip = `${localTime(start).textContent}: ${formatNumber(primary)} to primary, ${formatNumber(backlog)} to backlog`;
    return h("g", {}, h("title", {}, tooltip),
      primary > 0 && h("rect", { class: "primary", x, y: y(primary), width: barWidth, height: Math.max(1, y(0) - y(primary)) }),
      backlog > 0 && h("rect", {
        class: "backlog", x, y: y(primary + backlog), width: barWidth, height: Math.max(1.5, y(primary) - y(primary + backlog)),
      }));
  });
  const hourLabels = [];
  const hourStep = width < 420 ? 2 : 1;
  for (let hour = 0; hour <= sends.hours; hour += hourStep) {
    const at = last - hour * 3600;
    const x = LEFT + ((at - first) / slot) * step + step / 2;
    hourLabels.push(h("text", { x, y: HEIGHT - 6, "text-anchor": hour === 0 ? "end" : "middle" }, hour === 0 ? "now" : `−${hour} h`));
  }
  const gridLines = [0, top / 2, top].map((value) => [
    h("line", { x1: LEFT, x2: width, y1: y(value), y2: y(value) }),
    h("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, axisLabel(value)),
  ]);
  const summary = `Messages sent in the last ${sends.hours} hours: ${formatNumber(sends.primary)} to the primary, ${formatNumber(sends.backlog)} to the backlog.`;
  return h("svg", { class: "plot", viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": summary }, gridLines, bars, hourLabels);
}

/** Horizontal bar that is filled to a fraction of its width. */
export function bar(fraction, { kind = "primary" } = {}) {
  const filled = `${Math.max(fraction > 0 ? 1 : 0, Math.min(100, fraction * 100)).toFixed(1)}%`;
  return h("svg", { class: "bar", "aria-hidden": "true" },
    h("rect", { class: "track", width: "100%", height: "100%", rx: 3 }),
    h("rect", { class: kind, width: filled, height: "100%", rx: 3 }));
}

function niceMaximum(value) {
  const scale = 10 ** Math.floor(Math.log10(value));
  for (const factor of [1, 1.5, 2, 3, 4, 5, 6, 8, 10]) if (value <= factor * scale) return Math.max(2, factor * scale);
  return value;
}

function axisLabel(value) {
  if (value >= 1e6) return `${value / 1e6}M`;
  return value >= 1e4 ? `${value / 1e3}k` : formatNumber(value);
}
