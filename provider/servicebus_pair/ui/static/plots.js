// Charts drawn as SVG.

import { formatNumber, h, localTime } from "./elements.js";

const HEIGHT = 150;
const LEFT = 46;
const BOTTOM = 22;
const TOP = 8;
const ROUTES = ["primary", "backlog", "spool"];

/** Stacked bar chart of the messages sent in the last hours: primary below, backlog and spool on top; outages shaded. */
export function sendsPlot(sends, incidents, now, width) {
  const slot = sends.slot_seconds;
  const last = Math.floor(now / slot) * slot;
  const first = last - sends.hours * 3600;
  const slots = Math.round((last - first) / slot) + 1;
  const top = niceMaximum(Math.max(1, ...sends.slots.map(([, primary, backlog, spooled]) => primary + backlog + spooled)));
  const step = (width - LEFT - 4) / slots;
  const plotHeight = HEIGHT - TOP - BOTTOM;
  const y = (value) => TOP + plotHeight - (value / top) * plotHeight;
  const bars = sends.slots.map(([start, ...counts]) => {
    const x = LEFT + Math.round((start - first) / slot) * step;
    const barWidth = Math.max(2, step - 1.5);
    const [primary, backlog, spooled] = counts.map(formatNumber);
    const tooltip = `${localTime(start).textContent}: ${primary} to primary, ${backlog} to backlog, ${spooled} to spool`;
    let below = 0;
    const parts = counts.map((count, index) => {
      below += count;
      return count > 0 && h("rect", { class: ROUTES[index], x, y: y(below), width: barWidth, height: Math.max(1.5, y(below - count) - y(below)) });
    });
    return h("g", {}, h("title", {}, tooltip), parts);
  });
  const xOf = (at) => LEFT + Math.max(0, (at - first) / slot) * step;
  const outages = incidents.filter((each) => (each.until ?? now) > first).map((each) => h("g", {},
    h("title", {}, `${each.entity}: ${each.reason}`),
    h("rect", { class: "outage", x: xOf(each.at), y: TOP, width: Math.max(2, xOf(each.until ?? now) - xOf(each.at)), height: plotHeight })));
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
  const summary = `Messages sent in the last ${sends.hours} hours: ${formatNumber(sends.primary)} to the primary, ${formatNumber(sends.backlog)} to the backlog, ${formatNumber(sends.spooled)} to the spool; ${outages.length} outages.`;
  return h("svg", { class: "plot", viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": summary }, outages, gridLines, bars, hourLabels);
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
