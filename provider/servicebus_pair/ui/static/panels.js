// The panels of one pair.

import { formatBytes, formatDuration, formatNumber, h, localTime, plural, relativeTime } from "./elements.js";
import { bar, sendsPlot } from "./plots.js";
import { rungs, spooledMessages } from "./rungs.js";
import { verdict } from "./verdict.js";

const STATE_LABELS = { healthy: "healthy", suspect: "suspect", failed_over: "failed over", failing_back: "failing back", diverted: "diverted", unreadable: "unreadable", unknown: "unknown" };
const SEVERITY = { failed_over: 0, failing_back: 1, diverted: 2, unreadable: 3, suspect: 4, unknown: 5, healthy: 6 };
const MAX_ROWS = 12; // above this, healthy entities are collapsed

/** Returns the section of one pair; `collapsed` leaves its details to a click. */
export function pairSection(pair, { now, width, collapsed, toolbar, runLink, reportButton }) {
  const [kind, sentence] = verdict(pair);
  const id = `pair-${pair.conn_id}`;
  const panels = [
    panel(pair, "timeline", `Timeline of ${pair.sends.hours} hours`, timeline(pair, now, width), { wide: true }),
    panel(pair, "syphon", "Syphon", syphon(pair, now, runLink)),
    panel(pair, "entities", "Entities", entities(pair, now), { wide: true }),
    panel(pair, "backlog", "Backlog", backlog(pair, now), { wide: true }),
    panel(pair, "dead-letters", "Dead letters", deadLetters(pair, now), { wide: true }),
    panel(pair, "incidents", "Incidents of 30 days", incidents(pair, now, runLink, reportButton), { wide: true }),
    panel(pair, "actions", "Actions of 30 days", actionLog(pair, now, runLink, reportButton), { wide: true }),
    panel(pair, "cost", "Cost of 24 hours", cost(pair, now), { wide: true }),
  ];
  const isLine = (each) => each.classList.contains("line");
  // The timeline stays on top, and what is empty comes last.
  const sorted = [panels[0], ...panels.slice(1).filter((each) => !isLine(each)), ...panels.slice(1).filter(isLine)];
  const details = [toolbar, h("div", { class: "grid", key: "grid" }, sorted)];
  return h("section", { class: "pair", id, key: pair.conn_id, "aria-labelledby": `${id}-name` },
    h("div", { class: "head" },
      h("h2", { id: `${id}-name` }, pair.conn_id),
      h("p", { class: `verdict ${kind}` }, h("span", { class: "dot", "aria-hidden": "true" }), sentence)),
    rungs(pair, now),
    collapsed ? h("details", { key: "collapsed" }, h("summary", {}, "Timeline, actions and details"), details) : h("div", { key: "details" }, details));
}

// A text is what there is to say of something empty, and takes one line.
function panel(pair, name, title, content, { wide = false } = {}) {
  const id = `${pair.conn_id}-${name}`;
  const isLine = typeof content === "string";
  return h("section", { class: isLine ? "panel line" : wide ? "panel wide" : "panel", key: name, "aria-labelledby": id },
    h("h3", { id }, title), isLine ? h("p", { class: "muted" }, content) : content);
}

// On a narrow screen each row is a block, `data-head` labels its cells, and a cell without a value is left out.
function table(caption, heads, rows, { tight = false } = {}) {
  return h("div", { class: "scroll" },
    h("table", { class: tight ? "tight" : null },
      h("caption", { class: "visually-hidden" }, caption),
      h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
      h("tbody", {}, rows.map(({ key, cells, kind }) =>
        h("tr", { key, class: kind }, cells.map((cell, index) =>
          h(index === 0 ? "th" : "td", index === 0 ? { scope: "row" } : { "data-head": heads[index], class: cell === "–" ? "none" : null }, index === 0 ? cell : h("div", {}, cell))))))));
}

function entities(pair, now) {
  if (pair.entities.length === 0) return pair.sends.primary === null ? "No entity has failed yet." : "No task has sent anything yet.";
  const sorted = [...pair.entities].sort((a, b) => SEVERITY[a.state] - SEVERITY[b.state] || a.entity.localeCompare(b.entity));
  const heads = ["Entity", "Health", "For", "By", "Reason", "Last ping", "Sent to primary / backlog / spool"];
  const entityTable = (list, caption) => table(caption, heads, list.map((entity) => ({ key: entity.entity, cells: entityCells(entity, now) })));
  if (sorted.length <= MAX_ROWS) return entityTable(sorted, "Health of each entity");
  const unhealthy = sorted.filter((entity) => entity.state !== "healthy");
  const healthy = sorted.filter((entity) => entity.state === "healthy");
  return [
    unhealthy.length > 0 && entityTable(unhealthy, "Unhealthy entities"),
    h("details", { key: "healthy" }, h("summary", {}, plural(healthy.length, "healthy entity", "healthy entities")),
      entityTable(healthy, "Healthy entities")),
  ];
}

function entityCells(entity, now) {
  const isHeld = entity.held_until !== null && entity.held_until > now && entity.state === "failed_over";
  const isWaiting = entity.waiting > 0 && entity.state !== "failed_over";
  const reason = entity.reason || (entity.state === "unknown" ? "No health information yet." : "–");
  return [
    h("code", {}, entity.entity),
    [h("span", { class: `badge ${entity.state}` }, STATE_LABELS[entity.state] ?? entity.state),
      entity.by_hand && h("span", { class: "badge manual" }, "manual"),
      isHeld && h("span", { class: "muted" }, ` held for ${formatDuration(entity.held_until - now)}`)],
    entity.since === null ? "–" : relativeTime(entity.since, now, { suffix: "" }),
    entity.by || "–",
    reason === "–" && !isWaiting ? reason : h("span", { class: "wrap" }, reason,
      isWaiting ? h("span", { class: "muted" }, ` · at least ${plural(entity.waiting, "message")} in the backlog`) : ""),
    entity.last_ping === null ? "–" : relativeTime(entity.last_ping, now),
    entity.primary === null ? "–" : [h("span", { class: "primary" }, formatNumber(entity.primary)), " / ", h("span", { class: entity.backlog > 0 ? "backlog" : "muted" }, formatNumber(entity.backlog)),
      " / ", h("span", { class: entity.spooled > 0 ? "spool" : "muted" }, formatNumber(entity.spooled))],
  ];
}

function timeline(pair, now, width) {
  const { sends: sent } = pair;
  const first = now - sent.hours * 3600;
  const isCounted = sent.primary !== null;
  if (sent.slots.length === 0 && !pair.incidents.some((each) => (each.until ?? now) > first)) return isCounted ? "No task sent anything, and nothing failed over." : "Nothing failed over.";
  const legend = (kind, text) => h("span", {}, h("i", { class: `swatch ${kind}` }), text);
  return [
    h("p", { class: "legend" },
      isCounted && legend("primary", `primary ${formatNumber(sent.primary)}`),
      isCounted && legend("backlog", `backlog ${formatNumber(sent.backlog)}`),
      isCounted && pair.spool.configured && legend("spool", `spool ${formatNumber(sent.spooled)}`),
      legend("outage", "failed over"),
      h("span", { class: "muted" }, "as tasks reported")),
    sendsPlot(sent, pair.incidents, now, Math.max(300, width - 36)),
  ];
}

function syphon(pair, now, runLink) {
  const view = pair.syphon;
  const parts = [];
  if (view.paused) parts.push(h("p", { class: "notice warn" }, "Paused by ", h("strong", {}, view.by), ": ", view.reason, " (", relativeTime(view.at, now), ")"));
  if (view.rate !== null) parts.push(h("p", { class: "notice calm" }, `Limited to ${plural(view.rate, "message")} per second by `, h("strong", {}, view.rate_by), ": ", view.rate_reason));
  const figures = [
    figure("remaining", view.remaining === null ? "unknown" : formatNumber(view.remaining)),
    figure("rate", `${formatNumber(view.per_second)}/s`),
    figure("time left", view.eta_seconds !== null ? formatDuration(view.eta_seconds) : view.remaining === 0 ? "done" : view.paused ? "paused" : "unknown"),
  ];
  if (view.running > 0 && view.moved === null) {
    parts.push(h("dl", { class: "figures" }, figures));
  } else if (view.running > 0) {
    const total = view.moved + (view.remaining ?? 0);
    const fraction = total > 0 ? view.moved / total : 1;
    parts.push(
      h("div", { class: "progress" },
        h("progress", { max: "100", value: (fraction * 100).toFixed(1), "aria-label": "moved" }),
        h("dl", { class: "figures" }, figure("moved", formatNumber(view.moved)), figures)));
  } else if (view.per_second > 0) {
    parts.push(
      view.moved !== null && h("p", { class: "notice calm" }, "No Airflow task is draining, but the backlog is shrinking: a Spark job or another syphon is at work."),
      h("dl", { class: "figures" }, figures));
  } else {
    const waiting = [[view.remaining, "backlog"], [spooledMessages(pair), "spool"]].filter(([count]) => count > 0);
    const where = waiting.map(([count, place], index) => `${index === 0 ? plural(count, "message") : formatNumber(count)} in the ${place}`);
    const text = `No drain task is running${where.length > 0 ? `; ${where.join(", ")}` : ""}.`;
    if (parts.length === 0 && view.drains.length === 0) return text;
    parts.push(note(text));
  }
  const active = view.drains.slice(0, view.running);
  const recent = view.drains.slice(view.running);
  if (view.drains.length > 0 && view.moved !== null) parts.push(note("Moved messages and the rate of tasks are as the tasks reported."));
  if (active.length > 0) parts.push(h("details", { open: true, key: "active" }, h("summary", {}, plural(view.running, "task")), drains(active, now, runLink)));
  if (recent.length > 0) parts.push(h("details", { key: "recent" }, h("summary", {}, "Recent tasks"), drains(recent, now, runLink)));
  return parts;
}

function drains(list, now, runLink) {
  return h("ul", { class: "plain" }, list.map((drain) => h("li", { key: [drain.dag_id, drain.run_id, drain.task_id, drain.map_index].join("/") },
    runLink(drain, `${drain.task_id}${drain.map_index >= 0 ? ` ${drain.map_index}` : ""}`),
    " ", h("span", { class: `badge run ${drain.state}` }, drain.state),
    drain.moved === null ? "" : ` ${plural(drain.moved, "message")} moved`,
    drain.dead_lettered > 0 ? `, ${formatNumber(drain.dead_lettered)} dead-lettered` : "",
    drain.at === null ? "" : [", ", relativeTime(drain.at, now)])));
}

const figure = (name, value) => h("div", {}, h("dt", {}, name), h("dd", {}, value));

const sum = (numbers) => numbers.reduce((total, each) => total + each, 0);

const isEmpty = (queue) => queue.active + queue.scheduled + queue.dead_lettered === 0;

function backlog(pair, now) {
  const view = pair.backlog;
  const parts = [];
  if (view.error !== null) parts.push(h("p", { class: "notice warn" }, "Counting failed: ", view.error, view.counted_at === null ? "" : [". These counts are from ", relativeTime(view.counted_at, now), "."]));
  if (view.counted_at === null) return parts.length > 0 ? parts : "Not counted yet.";
  const isQuiet = view.error === null && [view.messages, view.dead_lettered, view.missing.length, view.extra.length, view.drift.length].every((count) => count === 0);
  if (isQuiet) {
    const sessions = view.queues.filter((queue) => queue.requires_session).length;
    return `Empty: ${plural(view.queues.length, "queue")}${sessions > 0 ? `, ${sessions} of them for sessions` : ""}; all as expected.`;
  }
  parts.push(h("dl", { class: "figures" },
    figure("messages", formatNumber(view.messages)),
    figure("oldest", view.oldest_seconds === null ? "–" : formatDuration(view.oldest_seconds)),
    figure("size", formatBytes(view.size_bytes)),
    figure("dead letters", formatNumber(view.dead_lettered)),
    figure("queues", formatNumber(view.queues.length)),
    view.queues.some((queue) => queue.requires_session) && figure("in sessions", formatNumber(sum(view.queues.filter((queue) => queue.requires_session).map((queue) => queue.active))))));
  const deepest = Math.max(1, ...view.queues.map((queue) => queue.active + queue.scheduled));
  const queueTable = (caption, queues) => table(caption, ["Queue", "Depth", "Messages", "Oldest", "Size", "Dead letters"], queues.map((queue) => ({
    key: queue.path,
    kind: queue.state !== "in use" ? "not-in-use" : null,
    cells: [
      [h("code", {}, queue.path), queue.requires_session && h("span", { class: "badge sessions" }, "sessions"), queue.state !== "in use" && h("span", { class: `badge ${queue.state}` }, queue.state)],
      bar((queue.active + queue.scheduled) / deepest, { kind: "backlog" }),
      formatNumber(queue.active + queue.scheduled),
      queue.oldest_seconds === null ? "–" : formatDuration(queue.oldest_seconds),
      formatBytes(queue.size_bytes),
      h("span", { class: queue.dead_lettered > 0 ? "critical" : "muted" }, formatNumber(queue.dead_lettered)),
    ],
  })), { tight: true });
  const [shown, empty] = [(queue) => !isEmpty(queue) || queue.state !== "in use", (queue) => isEmpty(queue) && queue.state === "in use"].map((each) => view.queues.filter(each));
  if (shown.length > 0) parts.push(queueTable("Backlog queues", shown));
  if (empty.length > 0) parts.push(h("details", { key: "empty" }, h("summary", {}, plural(empty.length, "empty queue")), queueTable("Empty backlog queues", empty)));
  parts.push(h("p", { class: view.drift.length + view.extra.length > 0 ? "notice warn" : "muted" },
    view.extra.length > 0 ? `${plural(view.extra.length, "extra queue")}, not in use: ${view.extra.join(", ")}. ` : "No extra queues. ",
    view.drift.length > 0 ? `${plural(view.drift.length, "property differs", "properties differ")} from the expected value:` : "All queue properties are as expected."));
  if (view.drift.length > 0) {
    parts.push(table("Drift", ["Queue", "Property", "Actual", "Expected"], view.drift.map((drift) => ({
      key: `${drift.queue}/${drift.field}`,
      cells: [h("code", {}, drift.queue), drift.field, drift.actual, drift.expected],
    }))));
  }
  return parts;
}

function deadLetters(pair, now) {
  const view = pair.backlog;
  if (view.counted_at === null) return "Not counted yet.";
  if (view.dead_lettered === 0) return "None.";
  return [
    h("ul", { class: "plain" }, Object.entries(view.dead_letter_reasons).map(([reason, number]) =>
      h("li", { key: reason }, h("strong", {}, reason), `: ${formatNumber(number)}`))),
    h("details", {}, h("summary", {}, `${plural(view.dead_letters.length, "message")}, newest first`),
      table("Dead letters", ["Message id", "Reason", "Destination", "Age"], view.dead_letters.map((letter, index) => ({
        key: `${letter.queue}/${letter.message_id}/${index}`,
        cells: [
          h("code", { title: letter.queue }, letter.message_id || "–"),
          [letter.reason, letter.description && h("span", { class: "muted" }, ` ${letter.description}`)],
          letter.destination ?? "unknown",
          letter.at === null ? "–" : relativeTime(letter.at, now),
        ],
      })))),
  ];
}

function cost(pair, now) {
  const view = pair.cost;
  if (view.total === 0 && view.reported_at === null) return `No task made a billed operation; this page made ${formatNumber(view.page)}.`;
  if (view.total === null && view.reported_at === null) return `What tasks made is unknown; this page made ${formatNumber(view.page)}.`;
  const kinds = Object.entries(view.operations).sort((a, b) => b[1] - a[1]);
  return [
    view.total !== null && h("p", {}, h("strong", {}, formatNumber(view.total)), ` operations, as tasks reported; a continuous syphon on an empty backlog takes ${formatNumber(view.quiet_day)} receives a day. `,
      h("span", { class: "muted" }, `Cost beyond the base charge: ${view.amount} ${view.currency} (prices of ${view.as_of}). This page made ${formatNumber(view.page)} more operations. Pings by triggers are not metered.`)),
    kinds.length > 0 && h("details", {}, h("summary", {}, "By kind"),
      h("ul", { class: "plain" }, kinds.map(([name, number]) => h("li", { key: name }, `${name.replaceAll("_", " ")}: ${formatNumber(number)}`)))),
    view.reported_at !== null && h("details", {}, h("summary", {}, [`Cost report of ${view.reported_by}, `, relativeTime(view.reported_at, now)]), costReport(view.report)),
  ];
}

function costReport(report) {
  const rows = ["planned", "measured"].filter((name) => report[name]).map((name) => ({
    key: name,
    cells: [name, formatNumber(report[name].total), formatNumber(report[name].billable), `${report[name].amount} ${report.prices?.currency ?? ""}`],
  }));
  return table("Cost report", ["", "Operations", "Billable", "Cost"], rows);
}

function incidents(pair, now, runLink, reportButton) {
  if (pair.incidents.length === 0) return "None.";
  return table("Incidents", ["Entity", "Start", "Duration", "Reason", "Runs"], pair.incidents.map((incident) => ({
    key: `${incident.entity}/${incident.at}`,
    cells: [
      h("code", {}, incident.entity),
      localTime(incident.at),
      incident.until === null ? h("span", { class: "badge failed_over" }, `ongoing, ${formatDuration(now - incident.at)}`) : incident.until - incident.at < 1 ? "less than 1 s" : formatDuration(incident.until - incident.at),
      h("span", { class: "wrap" }, incident.reason, h("span", { class: "muted" }, ` (reported by ${incident.by}`, incident.ended_by ? `; ended by ${incident.ended_by}${incident.end_reported ? ", as a task reported" : ""})` : ")")),
      incident.runs.length === 0 ? "–" : h("ul", { class: "plain" }, incident.runs.map((run) => h("li", { key: `${run.dag_id}/${run.run_id}` }, runSummary(pair, run, runLink, reportButton)))),
    ],
  })));
}

function runSummary(pair, run, runLink, reportButton) {
  const { moved, lost } = run.reported;
  return [
    runLink(run, run.dag_id), " ", h("span", { class: `badge run ${run.state}` }, run.state),
    moved !== undefined && ` ${plural(Object.values(moved).reduce((sum, each) => sum + each, 0), "message")} moved, as a task reported`,
    run.lost !== null ? [", ", h("span", { class: run.lost > 0 || (run.verdict ?? "proven") !== "proven" ? "critical" : null }, run.verdict && run.verdict !== "lost" ? `${run.verdict}, ${formatNumber(run.lost)} lost` : `${formatNumber(run.lost)} lost`)] : lost !== undefined && `, ${formatNumber(lost)} lost, as a task reported`,
    run.report && [" ", reportButton(pair, run)],
  ];
}

const PAST_TENSE = {
  provision: "provisioned", drill: "started a drill", fail_over: "failed over", fail_back: "failed back",
  start_syphon: "started the syphon", pause_syphon: "paused the syphon", resume_syphon: "resumed the syphon",
  throttle_syphon: "throttled the syphon", redrive: "re-drove dead letters", plan_cleanup: "planned a cleanup",
};

function actionLog(pair, now, runLink, reportButton) {
  if (pair.action_log.length === 0) return "None on this page.";
  return h("ul", { class: "plain action-log" }, pair.action_log.map((record) => h("li", { key: `${record.at}/${record.action}` },
    relativeTime(record.at, now), " ", h("strong", {}, record.user), ` ${PAST_TENSE[record.action] ?? record.action}`,
    Array.isArray(record.detail.entities) ? ` (${record.detail.entities.join(", ")})` : "",
    typeof record.detail.rate === "number" ? ` (${formatNumber(record.detail.rate)}/s)` : record.action === "throttle_syphon" ? " (no limit)" : "",
    ": ", h("q", {}, record.reason),
    record.run !== null && [" ", runSummary(pair, record.run, runLink, reportButton)])));
}

const note = (text) => h("p", { class: "muted" }, text);
