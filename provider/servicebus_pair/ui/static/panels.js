// What is shown of one pair.

import { bytes, clock, count, duration, h, moment, plural } from "./elements.js";
import { bar, sendsPlot } from "./plots.js";
import { verdict } from "./verdict.js";

const STATES = { healthy: "healthy", suspect: "suspect", failed_over: "failed over", diverted: "diverted", unreadable: "unreadable", unknown: "not told" };
const RANK = { failed_over: 0, diverted: 1, unreadable: 2, suspect: 3, unknown: 4, healthy: 5 };
const MANY = 12;

/** The whole of one pair. */
export function pairSection(pair, { now, width, toolbar, link, report }) {
  const [kind, sentence] = verdict(pair);
  const id = `pair-${pair.conn_id}`;
  const wide = width >= 900;
  return h("section", { class: "pair", id, key: pair.conn_id, "aria-labelledby": `${id}-name` },
    h("div", { class: "head" },
      h("h2", { id: `${id}-name` }, pair.conn_id),
      h("p", { class: `verdict ${kind}` }, h("span", { class: "dot", "aria-hidden": "true" }), sentence)),
    toolbar,
    h("div", { class: "ends" },
      namespaceCard(pair.primary, "primary", now),
      h("div", { class: `between ${kind}`, "aria-hidden": "true" }, "⇄"),
      namespaceCard(pair.secondary, "secondary", now)),
    h("div", { class: "grid" },
      panel(pair, "Entities", entities(pair, now), { wide: true }),
      panel(pair, "Sends by route", sends(pair, now, wide ? 580 : Math.max(300, Math.min(640, width - 60)))),
      panel(pair, "Syphon", syphon(pair, now, link)),
      panel(pair, "Backlog", backlog(pair, now), { wide: true }),
      panel(pair, "Dead letters", deadLetters(pair, now)),
      panel(pair, "Cost", cost(pair, now)),
      panel(pair, "Incidents of 30 days", incidents(pair, now, link, report), { wide: true }),
      panel(pair, "What people did here", deeds(pair, now, link, report), { wide: true })));
}

function panel(pair, title, content, { wide = false } = {}) {
  const id = `${pair.conn_id}-${title.replaceAll(" ", "-").toLowerCase()}`;
  return h("section", { class: wide ? "panel wide" : "panel", key: title, "aria-labelledby": id },
    h("h3", { id }, title), content);
}

function namespaceCard(space, side, now) {
  const kind = space.reachable === null ? "calm" : space.reachable ? "good" : "bad";
  const state = space.reachable === null ? "not asked yet"
    : space.reachable ? `reachable, ${space.latency_ms} ms` : `not reachable: ${space.error}`;
  return h("div", { class: `end ${kind}` },
    h("span", { class: "side" }, side),
    h("strong", {}, space.name),
    h("span", { class: "state" }, h("span", { class: "dot", "aria-hidden": "true" }), state),
    h("span", { class: "faint" }, space.checked_at === null ? "" : ["asked ", moment(space.checked_at, now)],
      space.reachable === false ? [", so for ", moment(space.since, now, { suffix: "" })] : ""));
}

// What a table's cells say on a narrow screen, where each row is a block of its own.
function table(caption, heads, rows, { tight = false } = {}) {
  return h("div", { class: "scroll" },
    h("table", { class: tight ? "tight" : null },
      h("caption", { class: "unseen" }, caption),
      h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
      h("tbody", {}, rows.map(({ key, cells, kind }) =>
        h("tr", { key, class: kind }, cells.map((cell, at) =>
          h(at === 0 ? "th" : "td", at === 0 ? { scope: "row" } : { "data-head": heads[at] }, at === 0 ? cell : h("div", {}, cell))))))));
}

function entities(pair, now) {
  if (pair.entities.length === 0) return nothing("No task has sent anything yet.");
  const sorted = [...pair.entities].sort((a, b) => RANK[a.state] - RANK[b.state] || a.entity.localeCompare(b.entity));
  const heads = ["Entity", "Health", "Since", "By", "Reason", "Last ping", "Sent direct / by backlog"];
  const shown = (list, caption) => table(caption, heads, list.map((entity) => ({ key: entity.entity, cells: entityCells(entity, now) })));
  if (sorted.length <= MANY) return shown(sorted, "Health of each entity");
  const troubled = sorted.filter((entity) => entity.state !== "healthy");
  const well = sorted.filter((entity) => entity.state === "healthy");
  return [
    troubled.length > 0 && shown(troubled, "Entities in trouble"),
    h("details", { key: "well" }, h("summary", {}, `${plural(well.length, "healthy entity", "healthy entities")}`),
      shown(well, "Healthy entities")),
  ];
}

function entityCells(entity, now) {
  const held = entity.held_until !== null && entity.held_until > now && entity.state === "failed_over";
  return [
    h("code", {}, entity.entity),
    [h("span", { class: `badge ${entity.state}` }, STATES[entity.state] ?? entity.state),
      entity.by_hand && h("span", { class: "badge hand" }, "by hand"),
      held && h("span", { class: "faint" }, ` for ${duration(entity.held_until - now)} at least`)],
    entity.since === null ? "–" : moment(entity.since, now, { suffix: "" }),
    entity.by || "–",
    h("span", { class: "told" }, entity.reason || (entity.state === "unknown" ? "No task has told of its health yet." : "–"),
      entity.waiting > 0 && entity.state !== "failed_over" ? h("span", { class: "faint" }, ` · ${plural(entity.waiting, "message")} or more in the backlog`) : ""),
    entity.last_ping === null ? "–" : moment(entity.last_ping, now),
    [h("span", { class: "direct" }, count(entity.primary)), " / ", h("span", { class: entity.backlog > 0 ? "round" : "faint" }, count(entity.backlog))],
  ];
}

function sends(pair, now, width) {
  const { sends: sent } = pair;
  return [
    h("p", { class: "legend" },
      h("span", {}, h("i", { class: "swatch direct" }), `direct: ${count(sent.primary)}`),
      h("span", {}, h("i", { class: "swatch round" }), `by the backlog: ${count(sent.backlog)}`)),
    sendsPlot(sent, now, width),
    sent.slots.length === 0 && nothing(`No task has sent anything in the last ${sent.hours} hours.`),
  ];
}

function syphon(pair, now, link) {
  const { syphon: now_ } = pair;
  const parts = [];
  if (now_.paused) parts.push(h("p", { class: "notice warn" }, "Paused by ", h("strong", {}, now_.by), ": ", now_.reason, " (", moment(now_.at, now), ")"));
  if (now_.rate !== null) parts.push(h("p", { class: "notice calm" }, `At most ${plural(now_.rate, "message")} a second, by `, h("strong", {}, now_.rate_by), ": ", now_.rate_reason));
  const rate = [
    figure("remaining", now_.remaining === null ? "unknown" : count(now_.remaining)),
    figure("rate", `${count(now_.per_second)}/s`),
    figure("time left", now_.eta_seconds !== null ? duration(now_.eta_seconds) : now_.remaining === 0 ? "done" : now_.paused ? "paused" : "unknown"),
  ];
  if (now_.running > 0) {
    const whole = now_.moved + (now_.remaining ?? 0);
    const done = whole > 0 ? now_.moved / whole : 1;
    parts.push(
      h("div", { class: "progress" },
        h("progress", { max: "100", value: (done * 100).toFixed(1), "aria-label": "moved" }),
        h("dl", { class: "figures" }, figure("moved", count(now_.moved)), rate)));
  } else if (now_.per_second > 0) {
    parts.push(
      h("p", { class: "notice calm" }, "No task of Airflow drains, yet the backlog shrinks: a Spark job, or a syphon elsewhere."),
      h("dl", { class: "figures" }, rate));
  } else {
    parts.push(nothing(now_.remaining ? `No task drains; ${plural(now_.remaining, "message")} in the backlog.` : "No task drains."));
  }
  const atWork = now_.drains.slice(0, now_.running);
  const lately = now_.drains.slice(now_.running);
  if (atWork.length > 0) parts.push(h("details", { open: true, key: "tasks" }, h("summary", {}, plural(now_.running, "task")), drains(atWork, now, link)));
  if (lately.length > 0) parts.push(h("details", { key: "lately" }, h("summary", {}, "Lately"), drains(lately, now, link)));
  return parts;
}

function drains(list, now, link) {
  return h("ul", { class: "plain" }, list.map((drain) => h("li", { key: [drain.dag_id, drain.run_id, drain.task_id, drain.map_index].join("/") },
    link(drain, `${drain.task_id}${drain.map_index >= 0 ? ` ${drain.map_index}` : ""}`),
    " ", h("span", { class: `badge run ${drain.state}` }, drain.state),
    ` ${plural(drain.moved, "message")} moved`,
    drain.dead_lettered > 0 ? `, ${count(drain.dead_lettered)} dead-lettered` : "",
    drain.at === null ? "" : [", ", moment(drain.at, now)])));
}

const figure = (name, value) => h("div", {}, h("dt", {}, name), h("dd", {}, value));

function backlog(pair, now) {
  const { backlog: held } = pair;
  const parts = [];
  if (held.error !== null) parts.push(h("p", { class: "notice warn" }, "Not counted just now: ", held.error, held.counted_at === null ? "" : [". What follows is from ", moment(held.counted_at, now), "."]));
  if (held.counted_at === null) return parts.length > 0 ? parts : nothing("Not counted yet.");
  parts.push(h("dl", { class: "figures" },
    figure("messages", count(held.messages)),
    figure("oldest", held.oldest_seconds === null ? "–" : duration(held.oldest_seconds)),
    figure("size", bytes(held.size_bytes)),
    figure("dead letters", count(held.dead_lettered)),
    figure("queues", count(held.queues.length)),
    figure("of them empty", count(held.queues.filter((queue) => queue.active + queue.scheduled + queue.dead_lettered === 0).length))));
  const most = Math.max(1, ...held.queues.map((queue) => queue.active + queue.scheduled));
  const queues = table("Backlog queues", ["Queue", "Depth", "Messages", "Oldest", "Size", "Dead letters"], held.queues.map((queue) => ({
    key: queue.path,
    kind: queue.state !== "in use" ? "odd" : queue.active + queue.scheduled + queue.dead_lettered === 0 ? "empty" : null,
    cells: [
      [h("code", {}, queue.path), queue.state !== "in use" && h("span", { class: `badge ${queue.state}` }, queue.state)],
      bar((queue.active + queue.scheduled) / most, { kind: "round" }),
      count(queue.active + queue.scheduled),
      queue.oldest_seconds === null ? "–" : duration(queue.oldest_seconds),
      bytes(queue.size_bytes),
      h("span", { class: queue.dead_lettered > 0 ? "loud" : "faint" }, count(queue.dead_lettered)),
    ],
  })), { tight: true });
  const quiet = held.messages === 0 && held.dead_lettered === 0 && held.missing.length === 0 && held.extra.length === 0;
  parts.push(quiet ? h("details", {}, h("summary", {}, `${plural(held.queues.length, "queue")}, all empty`), queues) : queues);
  parts.push(h("p", { class: held.drift.length + held.extra.length > 0 ? "notice warn" : "faint" },
    held.extra.length > 0 ? `${plural(held.extra.length, "queue is", "queues are")} beyond the number in use: ${held.extra.join(", ")}. ` : "No queue is beyond the number in use. ",
    held.drift.length > 0 ? `${plural(held.drift.length, "field differs", "fields differ")} from the description:` : "No queue differs from its description."));
  if (held.drift.length > 0) {
    parts.push(table("Drift", ["Queue", "Field", "Is", "Should be"], held.drift.map((drift) => ({
      key: `${drift.queue}/${drift.field}`,
      cells: [h("code", {}, drift.queue), drift.field, drift.actual, drift.expected],
    }))));
  }
  return parts;
}

function deadLetters(pair, now) {
  const { backlog: held } = pair;
  if (held.counted_at === null) return nothing("Not counted yet.");
  if (held.dead_lettered === 0) return nothing("There are none.");
  return [
    h("ul", { class: "plain" }, Object.entries(held.dead_letter_reasons).map(([reason, number]) =>
      h("li", { key: reason }, h("strong", {}, reason), `: ${count(number)}`))),
    h("details", {}, h("summary", {}, `${plural(held.dead_letters.length, "letter")}, the newest first`),
      table("Dead letters", ["Message id", "Reason", "For", "When"], held.dead_letters.map((letter, at) => ({
        key: `${letter.queue}/${letter.message_id}/${at}`,
        cells: [
          h("code", { title: letter.queue }, letter.message_id || "–"),
          [letter.reason, letter.description && h("span", { class: "faint" }, ` ${letter.description}`)],
          letter.destination ?? "unknown",
          letter.at === null ? "–" : moment(letter.at, now),
        ],
      })))),
  ];
}

function cost(pair, now) {
  const { cost: spent } = pair;
  const part = spent.quiet_day > 0 ? spent.total / spent.quiet_day : 0;
  const kinds = Object.entries(spent.operations).sort((a, b) => b[1] - a[1]);
  return [
    h("p", {}, h("strong", { class: "big" }, count(spent.total)), ` operations of tasks in the last 24 hours; a quiet day of a continuous syphon takes ${count(spent.quiet_day)} receives.`),
    bar(Math.min(1, part), { kind: part > 1 ? "round" : "direct" }),
    h("p", { class: "faint" }, `${part.toFixed(1)} quiet days. Beyond what the base charge includes: ${spent.amount} ${spent.currency} (prices of ${spent.as_of}). Looking at this page took ${count(spent.page)} more; pings of waiting triggers are not metered.`),
    kinds.length > 0 && h("details", {}, h("summary", {}, "By kind"),
      h("ul", { class: "plain" }, kinds.map(([name, number]) => h("li", { key: name }, `${name.replaceAll("_", " ")}: ${count(number)}`)))),
    spent.reported_at !== null && h("details", {}, h("summary", {}, ["Cost report of ", moment(spent.reported_at, now)]), costReport(spent.report)),
  ];
}

function costReport(report) {
  const rows = ["planned", "measured"].filter((name) => report[name]).map((name) => ({
    key: name,
    cells: [name, count(report[name].total), count(report[name].billable), `${report[name].amount} ${report.prices?.currency ?? ""}`],
  }));
  return table("Cost report", ["", "Operations", "Billable", "Cost"], rows);
}

function incidents(pair, now, link, report) {
  if (pair.incidents.length === 0) return nothing("None.");
  return table("Incidents", ["Entity", "Began", "Lasted", "Reason", "Runs"], pair.incidents.map((incident) => ({
    key: `${incident.entity}/${incident.at}`,
    cells: [
      h("code", {}, incident.entity),
      clock(incident.at),
      incident.until === null ? h("span", { class: "badge failed_over" }, `${duration(now - incident.at)} so far`) : incident.until - incident.at < 1 ? "over when told" : duration(incident.until - incident.at),
      h("span", { class: "told" }, incident.reason, h("span", { class: "faint" }, ` by ${incident.by}`, incident.ended_by ? `; ended by ${incident.ended_by}` : "")),
      h("ul", { class: "plain" }, incident.runs.map((run) => h("li", { key: `${run.dag_id}/${run.run_id}` }, runTold(pair, run, link, report)))),
    ],
  })));
}

// A run, how it went, and what it found out.
function runTold(pair, run, link, report) {
  const moved = Object.values(run.result.moved ?? {}).reduce((sum, each) => sum + each, 0);
  return [
    link(run, run.dag_id), " ", h("span", { class: `badge run ${run.state}` }, run.state),
    run.result.moved !== undefined && ` ${plural(moved, "message")} moved`,
    run.result.lost !== undefined && [", ", h("span", { class: run.result.lost > 0 ? "loud" : null }, `${count(run.result.lost)} lost`)],
    run.report && [" ", report(pair, run)],
  ];
}

const DEEDS = {
  provision: "provisioned", drill: "started a drill", fail_over: "failed over", fail_back: "failed back",
  start_syphon: "started the syphon", pause_syphon: "paused the syphon", resume_syphon: "resumed the syphon",
  throttle_syphon: "throttled the syphon", redrive: "re-drove dead letters", plan_cleanup: "planned a cleanup",
};

function deeds(pair, now, link, report) {
  if (pair.deeds.length === 0) return nothing("Nothing in 30 days.");
  return h("ul", { class: "plain deeds" }, pair.deeds.map((deed) => h("li", { key: `${deed.at}/${deed.action}` },
    moment(deed.at, now), " ", h("strong", {}, deed.user), ` ${DEEDS[deed.action] ?? deed.action}`,
    Array.isArray(deed.detail.entities) ? ` (${deed.detail.entities.join(", ")})` : "",
    typeof deed.detail.rate === "number" ? ` (${count(deed.detail.rate)}/s)` : deed.action === "throttle_syphon" ? " (no limit)" : "",
    ": ", h("q", {}, deed.reason),
    deed.run !== null && [" ", runTold(pair, deed.run, link, report)])));
}

const nothing = (text) => h("p", { class: "faint" }, text);
