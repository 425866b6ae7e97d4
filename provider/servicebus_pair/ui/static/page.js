// Asks the server every few seconds, and shows what it says.

import { ask, toolbar } from "./dialogs.js";
import { duration, h, plural, show } from "./elements.js";
import { pairSection } from "./panels.js";
import { verdict } from "./verdict.js";

const EVERY_MS = 2500;
const WAIT_MS = 10000;
const FEW = 3;
const place = (id) => document.getElementById(id);

let told = null; // the last answer
let offset = 0; // of the server's clock, seconds
let failed = null; // why the last request had no answer
let held = false;
let states = null; // of each entity, for what is announced

function follow(event, url) {
  // Airflow shows this page in a frame that may not navigate the window: a link of the window itself may.
  if (window.parent === window || event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
  try {
    const anchor = window.parent.document.createElement("a");
    anchor.href = url;
    window.parent.document.body.append(anchor);
    event.preventDefault();
    anchor.click();
    anchor.remove();
  } catch {
    // Not in Airflow's frame: the link does what links do.
  }
}

function link(run, text) {
  const task = run.task_id === undefined ? "" : `/tasks/${encodeURIComponent(run.task_id)}${run.map_index >= 0 ? `/mapped/${run.map_index}` : ""}`;
  const url = new URL(`../dags/${encodeURIComponent(run.dag_id)}/runs/${encodeURIComponent(run.run_id)}${task}`, document.baseURI).href;
  return h("a", { href: url, title: run.run_id, onclick: (event) => follow(event, url) }, text);
}

function report(pair, run) {
  const path = `api/pairs/${[pair.conn_id].map(encodeURIComponent)}/reports/${encodeURIComponent(run.dag_id)}/${encodeURIComponent(run.run_id)}`;
  return h("button", { type: "button", class: "small", onclick: () => showReport(run, path) }, "reconcile report");
}

function showReport(run, path) {
  const dialog = place("dialog");
  show(dialog, h("div", { key: path, class: "report" },
    h("h2", { id: "dialog-title" }, "Reconcile report"),
    h("p", { class: "faint" }, `${run.dag_id}, ${run.run_id}`),
    h("iframe", { src: path, sandbox: "", title: "Reconcile report" }),
    h("div", { class: "buttons" }, h("button", { type: "button", autofocus: true, onclick: () => dialog.close() }, "Close"))));
  dialog.showModal();
}

function open(pair, name, problem = null) {
  ask(place("dialog"), pair, name, { problem, done: (label, answer) => {
    const toast = place("toast");
    show(toast, h("span", {}, `${label}: `, answer.run_id === null ? "done" : ["started ", link(answer, answer.dag_id)], `, on the record as ${answer.user}.`));
    toast.hidden = false;
    setTimeout(() => { toast.hidden = true; }, 12000);
    setTimeout(refresh, 700);
  } });
}

function chosen(pairs) {
  const wanted = decodeURIComponent(location.hash.replace(/^#(pair-)?/, ""));
  const worst = { bad: 0, warn: 1, calm: 2, good: 3 };
  return pairs.find((pair) => pair.conn_id === wanted)
    ?? [...pairs].sort((a, b) => worst[verdict(a)[0]] - worst[verdict(b)[0]])[0];
}

function render() {
  const now = Date.now() / 1000 + offset;
  const { snapshot, may_act: mayAct } = told;
  const pairs = snapshot.pairs;
  const many = pairs.length > FEW;
  const current = many ? chosen(pairs) : null;
  const shown = many ? [current] : pairs;
  place("choice").hidden = !many;
  if (many) {
    show(place("choice"), pairs.map((pair) => {
      const [kind] = verdict(pair);
      return h("a", { key: pair.conn_id, href: `#pair-${encodeURIComponent(pair.conn_id)}`, class: kind, "aria-current": pair === current ? "true" : null,
        onclick: () => setTimeout(render) },
      h("span", { class: "dot", "aria-hidden": "true" }), pair.conn_id, h("span", { class: "unseen" }, kind === "good" ? "" : ", in trouble"));
    }));
  }
  const main = place("pairs");
  const width = main.clientWidth;
  show(main,
    snapshot.problem !== null && h("p", { class: "notice bad", key: "problem" }, snapshot.problem),
    pairs.length === 0 ? h("p", { key: "none", class: "notice calm" }, "No connection of type ", h("code", {}, "servicebus_pair"), " is known here.") : [],
    shown.map((pair) => pairSection(pair, { now, width, link, report, toolbar: toolbar(pair, mayAct, open) })));
  place("interval").textContent = String(snapshot.interval);
  announce(pairs);
}

function announce(pairs) {
  const now = new Map(pairs.flatMap((pair) => pair.entities.map((entity) => [`${pair.conn_id} ${entity.entity}`, entity.state])));
  if (states !== null) {
    const news = [...now].filter(([name, state]) => states.has(name) ? states.get(name) !== state : state !== "healthy")
      .map(([name, state]) => `${name}: ${state.replace("_", " ")}`);
    if (news.length > 0) place("announce").textContent = news.slice(0, 5).join("; ") + (news.length > 5 ? `; and ${plural(news.length - 5, "more")}` : "");
  }
  states = now;
}

function pulse() {
  const dot = place("pulse-dot");
  const age = told === null ? null : Math.max(0, Date.now() / 1000 + offset - told.snapshot.at);
  const late = failed !== null || (age !== null && age > 4 * told.snapshot.interval);
  dot.className = `dot ${held ? "calm" : late ? "bad" : told === null ? "calm" : "good"}`;
  const text = told === null ? "Loading …" : `as of ${duration(age)} ago · signed in as ${told.user}`;
  place("pulse").textContent = failed === null ? (held ? `updates are paused; ${text}` : text) : `${failed}; ${text}`;
}

async function refresh() {
  const abort = new AbortController();
  const timer = setTimeout(() => abort.abort(), WAIT_MS);
  try {
    const answer = await fetch("api/snapshot", { signal: abort.signal, headers: { Accept: "application/json" } });
    if (!answer.ok) throw new Error(answer.status === 401 ? "signed out" : `the server said ${answer.status}`);
    told = await answer.json();
    offset = told.now - Date.now() / 1000;
    failed = null;
    render();
  } catch (error) {
    failed = error.name === "AbortError" ? "no answer" : error.message;
  } finally {
    clearTimeout(timer);
    pulse();
  }
}

async function live() {
  for (;;) {
    if (!held && !document.hidden) await refresh();
    pulse();
    await new Promise((resolve) => setTimeout(resolve, EVERY_MS));
  }
}

function theme() {
  // As Airflow around it, which has a switch; else as the system.
  let classes = document.documentElement.classList;
  try {
    classes = window.parent.document.documentElement.classList;
  } catch {
    // Another site's frame.
  }
  const name = ["dark", "light"].find((each) => classes.contains(each));
  if (name === undefined) document.documentElement.removeAttribute("data-theme");
  else document.documentElement.setAttribute("data-theme", name);
}

place("hold").addEventListener("click", (event) => {
  held = !held;
  event.target.setAttribute("aria-pressed", String(held));
  pulse();
});
window.addEventListener("resize", () => { if (told !== null) render(); });
setInterval(() => { theme(); pulse(); }, 1000);
theme();
live();
