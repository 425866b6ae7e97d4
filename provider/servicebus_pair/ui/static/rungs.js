// The three rungs of a send as a flow: primary, backlog, spool; and how fast messages go each way.

import { formatBytes, formatDuration, formatNumber, h, plural, relativeTime } from "./elements.js";
import { bar } from "./plots.js";

const WINDOW_SECONDS = 30;
const ALARM_SHARE = 0.8;
const ROUTES = ["primary", "backlog", "spooled"];
const histories = new Map(); // by connection: the totals of recent snapshots

/** Remembers the totals of a snapshot, from which the rates are derived. */
export function recordTotals(pairs, at) {
  for (const pair of pairs) {
    const history = histories.get(pair.conn_id) ?? [];
    if (history.length > 0 && history.at(-1).at >= at) continue;
    history.push({ at, ...Object.fromEntries(ROUTES.map((route) => [route, pair.sends[route]])) });
    while (history.length > 2 && history[1].at <= at - WINDOW_SECONDS) history.shift();
    histories.set(pair.conn_id, history);
  }
}

/** Returns the messages per second of a route, or null before two snapshots and where tasks count nothing. */
function rate(pair, route) {
  const history = histories.get(pair.conn_id) ?? [];
  if (history.length < 2 || history.at(-1)[route] === null) return null;
  const [first, last] = [history[0], history.at(-1)];
  return Math.max(0, last[route] - first[route]) / (last.at - first.at);
}

export const spooledMessages = (pair) => Object.values(pair.spool.messages).reduce((sum, each) => sum + each, 0);
export const unseenMessages = (pair) => pair.spool.elsewhere.reduce((sum, each) => sum + each.messages, 0);
export const isFilling = (spool) => spool.limit_bytes > 0 && spool.size_bytes >= ALARM_SHARE * spool.limit_bytes;

/** Returns how many entities use each rung now. */
export function entitiesByRung(pair) {
  const diverted = pair.entities.filter((entity) => ["failed_over", "diverted"].includes(entity.state)).length;
  const thirdRung = pair.secondary.reachable === false;
  return {
    primary: pair.entities.length - diverted,
    backlog: thirdRung ? 0 : diverted,
    spooled: thirdRung && pair.spool.configured ? diverted : 0,
  };
}

/** Returns the flow of one pair. */
export function rungs(pair, now) {
  const used = entitiesByRung(pair);
  return h("ol", { class: "rungs", "aria-label": "Where sends go" },
    rung("primary", "1 primary", pair.primary.name, reachability(pair.primary, now), used.primary, [
      figure("now", perSecond(rate(pair, "primary"))),
      figure(`sent in ${pair.sends.hours} h`, pair.sends.primary === null ? "unknown" : formatNumber(pair.sends.primary)),
    ], kindOf(pair.primary)),
    rung("backlog", "2 backlog on the secondary", pair.secondary.name, reachability(pair.secondary, now), used.backlog, [
      figure("now", perSecond(rate(pair, "backlog"))),
      figure("waiting", pair.backlog.counted_at === null ? "unknown" : formatNumber(pair.backlog.messages)),
      pair.backlog.oldest_seconds !== null && figure("oldest", formatDuration(pair.backlog.oldest_seconds)),
      pair.syphon.per_second > 0 && figure("leaving", perSecond(pair.syphon.per_second)),
    ], kindOf(pair.secondary)),
    spoolRung(pair, now, used.spooled));
}

function spoolRung(pair, now, used) {
  const { spool } = pair;
  if (!spool.configured) return rung("spool", "3 spool", "none", "a send fails when neither namespace takes it", 0, [], "calm");
  const waiting = spooledMessages(pair);
  const state = spool.error !== null ? `cannot be read: ${spool.error}` : waiting === 0 ? "empty" : ["oldest ", relativeTime(spool.oldest_at, now)];
  return rung("spool", "3 spool", `${formatBytes(spool.size_bytes)} of ${formatBytes(spool.limit_bytes)}`, state, used, [
    figure("now", perSecond(rate(pair, "spooled"))),
    figure("waiting", formatNumber(waiting)),
    unseenMessages(pair) > 0 && figure("on other machines", formatNumber(unseenMessages(pair))),
  ], spool.error !== null || isFilling(spool) ? "bad" : waiting + unseenMessages(pair) > 0 ? "warn" : "good", waiting > 0 && bar(spool.size_bytes / spool.limit_bytes, { kind: "spool" }));
}

function rung(route, side, name, state, entities, figures, kind, extra = null) {
  return h("li", { class: `namespace ${route} ${kind}${entities > 0 ? " used" : ""}`, key: route },
    h("span", { class: "side" }, side),
    h("strong", {}, name),
    h("span", { class: "state" }, h("span", { class: "dot", "aria-hidden": "true" }), state),
    extra,
    figures.length > 0 && h("dl", { class: "figures" }, figures),
    entities > 0 && h("span", { class: "used-by" }, `${plural(entities, "entity sends", "entities send")} here`));
}

const kindOf = (namespace) => namespace.reachable === null ? "calm" : namespace.reachable ? "good" : "bad";

function reachability(namespace, now) {
  if (namespace.reachable === null) return namespace.error ?? "not checked yet";
  if (namespace.reachable) return `reachable, ${namespace.latency_ms} ms`;
  return [`unreachable for `, relativeTime(namespace.since, now, { suffix: "" }), `: ${namespace.error}`];
}

const figure = (name, value) => h("div", {}, h("dt", {}, name), h("dd", {}, value));

function perSecond(value) {
  if (value === null) return "–";
  return `${value >= 10 || value === 0 ? formatNumber(Math.round(value)) : value.toFixed(1)}/s`;
}
