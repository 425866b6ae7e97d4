// Polls the API and renders the page.

import { openDialog, toolbar } from "./dialogs.js";
import { formatDuration, formatNumber, h, render } from "./elements.js";
import { pairSection } from "./panels.js";
import { recordTotals, spooledMessages } from "./rungs.js";
import { verdict } from "./verdict.js";

const POLL_MS = 2500;
const TIMEOUT_MS = 10000;
const TOAST_MS = 12000;
const MAX_PAIRS_AT_ONCE = 3; // with more pairs, one is displayed at a time
const byId = (id) => document.getElementById(id);

let latest = null; // the last successful response
let clockOffset = 0; // of the server's clock, seconds
let requestError = null; // why the last request failed
let paused = false;
let previousStates = null; // of each entity, to announce changes

function followLink(event, url) {
  // Airflow embeds this page in a sandboxed frame that may not navigate its parent; a link in the parent document may.
  if (window.parent === window || event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
  try {
    const anchor = window.parent.document.createElement("a");
    anchor.href = url;
    window.parent.document.body.append(anchor);
    event.preventDefault();
    anchor.click();
    anchor.remove();
  } catch {
    // Not in Airflow's frame: the browser follows the link.
  }
}

function runLink(run, text) {
  const task = run.task_id === undefined ? "" : `/tasks/${encodeURIComponent(run.task_id)}${run.map_index >= 0 ? `/mapped/${run.map_index}` : ""}`;
  const url = new URL(`../dags/${encodeURIComponent(run.dag_id)}/runs/${encodeURIComponent(run.run_id)}${task}`, document.baseURI).href;
  return h("a", { href: url, title: run.run_id, onclick: (event) => followLink(event, url) }, text);
}

function reportButton(pair, run) {
  const path = `api/pairs/${encodeURIComponent(pair.conn_id)}/reports/${encodeURIComponent(run.dag_id)}/${encodeURIComponent(run.run_id)}`;
  return h("button", { type: "button", class: "small", onclick: () => openReport(run, path) }, "reconcile report");
}

function openReport(run, path) {
  const dialog = byId("dialog");
  render(dialog, h("div", { key: path, class: "report" },
    h("h2", { id: "dialog-title" }, "Reconcile report"),
    h("p", { class: "muted" }, `${run.dag_id}, ${run.run_id}`),
    h("iframe", { src: path, sandbox: "", title: "Reconcile report" }),
    h("div", { class: "buttons" }, h("button", { type: "button", autofocus: true, onclick: () => dialog.close() }, "Close"))));
  dialog.showModal();
}

function openAction(pair, name, problem) {
  openDialog(byId("dialog"), pair, name, { problem, onSuccess: (label, result) => {
    const toast = byId("toast");
    render(toast, h("span", {}, `${label}: `, result.run_id === null ? "done" : ["triggered ", runLink(result, result.dag_id)], `; logged as ${result.user}.`));
    toast.hidden = false;
    setTimeout(() => { toast.hidden = true; }, TOAST_MS);
    setTimeout(refresh, 700);
  } });
}

const SEVERITY = { bad: 0, warn: 1, calm: 2, good: 3 };

function selectedPair(pairs) {
  const wanted = location.hash.replace(/^#(pair-)?/, "");
  return pairs.find((pair) => encodeURIComponent(pair.conn_id) === wanted) ?? pairs[0];
}

function namespacesDown(pair) {
  return [pair.primary, pair.secondary].filter((namespace) => namespace.reachable === false).length;
}

// One line for each pair, the worst first.
function overview(pairs, selected) {
  return pairs.map((pair) => {
    const [kind, sentence] = verdict(pair);
    const spooled = pair.spool.configured ? `, ${formatNumber(spooledMessages(pair))} in the spool` : "";
    return h("a", { key: pair.conn_id, href: `#pair-${encodeURIComponent(pair.conn_id)}`, class: kind, "aria-current": pair === selected ? "true" : null,
      onclick: () => setTimeout(renderPage) },
    h("span", { class: "dot", "aria-hidden": "true" }), h("strong", {}, pair.conn_id), h("span", { class: "sentence" }, sentence),
    h("span", { class: "muted" }, `${formatNumber(pair.backlog.messages)} in the backlog${spooled}`));
  });
}

function renderPage() {
  const now = Date.now() / 1000 + clockOffset;
  const { snapshot, may_act: mayAct } = latest;
  const pairs = [...snapshot.pairs].sort((a, b) => SEVERITY[verdict(a)[0]] - SEVERITY[verdict(b)[0]] || namespacesDown(b) - namespacesDown(a));
  recordTotals(pairs, snapshot.at);
  const several = pairs.length > 1;
  const selected = pairs.length > MAX_PAIRS_AT_ONCE ? selectedPair(pairs) : null;
  byId("tabs").hidden = !several;
  render(byId("tabs"), several ? overview(pairs, selected) : []);
  const main = byId("pairs");
  const width = main.clientWidth;
  render(main,
    snapshot.problem !== null && h("p", { class: "notice bad", key: "problem" }, snapshot.problem),
    snapshot.missing.map((sentence) => h("p", { class: "notice calm", key: sentence }, sentence)),
    pairs.length === 0 ? h("p", { key: "none", class: "notice calm" }, "There is no connection of type ", h("code", {}, "servicebus_pair"), ".") : [],
    (selected !== null ? [selected] : pairs).map((pair) => pairSection(pair, {
      now, width, runLink, reportButton, toolbar: toolbar(pair, mayAct, openAction),
      collapsed: several && selected === null && verdict(pair)[0] === "good",
    })));
  byId("interval").textContent = String(snapshot.interval);
  announceChanges(pairs);
}

function announceChanges(pairs) {
  const states = new Map(pairs.flatMap((pair) => pair.entities.map((entity) => [`${pair.conn_id} ${entity.entity}`, entity.state])));
  if (previousStates !== null) {
    const changes = [...states].filter(([name, state]) => previousStates.has(name) ? previousStates.get(name) !== state : state !== "healthy")
      .map(([name, state]) => `${name}: ${state.replace("_", " ")}`);
    if (changes.length > 0) byId("announcements").textContent = changes.slice(0, 5).join("; ") + (changes.length > 5 ? `; and ${changes.length - 5} more` : "");
  }
  previousStates = states;
}

function renderStatus() {
  const age = latest === null ? null : Math.max(0, Date.now() / 1000 + clockOffset - latest.snapshot.at);
  const isStale = requestError !== null || (age !== null && age > 4 * latest.snapshot.interval);
  byId("status-dot").className = `dot ${paused || (latest === null && !isStale) ? "calm" : isStale ? "bad" : "good"}`;
  const text = latest === null ? "Loading …" : `Data is ${formatDuration(age)} old · signed in as ${latest.user}`;
  const prefix = requestError ?? (paused ? "Updates paused" : null);
  byId("status").textContent = prefix === null ? text : `${prefix} · ${text}`;
}

async function refresh() {
  const abort = new AbortController();
  const timer = setTimeout(() => abort.abort(), TIMEOUT_MS);
  try {
    const response = await fetch("api/snapshot", { signal: abort.signal, headers: { Accept: "application/json" } });
    if (!response.ok) throw new Error(response.status === 401 ? "Signed out" : `Server error ${response.status}`);
    latest = await response.json();
    clockOffset = latest.now - Date.now() / 1000;
    requestError = null;
    renderPage();
  } catch (error) {
    requestError = error.name === "AbortError" ? "No response from the server" : error.message;
  } finally {
    clearTimeout(timer);
    renderStatus();
  }
}

async function poll() {
  for (;;) {
    if (!paused && !document.hidden) await refresh();
    renderStatus();
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

function applyTheme() {
  // Airflow's UI around the frame has a theme switch; without it, the system's setting applies.
  let classes = document.documentElement.classList;
  try {
    classes = window.parent.document.documentElement.classList;
  } catch {
    // The frame belongs to another site.
  }
  const name = ["dark", "light"].find((each) => classes.contains(each));
  if (name === undefined) document.documentElement.removeAttribute("data-theme");
  else document.documentElement.setAttribute("data-theme", name);
}

byId("pause").addEventListener("click", (event) => {
  paused = !paused;
  event.target.setAttribute("aria-pressed", String(paused));
  renderStatus();
});
window.addEventListener("resize", () => { if (latest !== null) renderPage(); });
setInterval(() => { applyTheme(); renderStatus(); }, 1000);
applyTheme();
poll();
