// Asks once, with a reason, and does what was asked for.

import { h, show } from "./elements.js";

const FORMS = {
  fail_over: { label: "Fail over", danger: true, fields: ["entities", "hold_minutes"],
    text: "Sends for these entities go to the backlog from now on, until somebody fails back, or the time is over and the primary answers." },
  fail_back: { label: "Fail back", fields: ["entities"],
    text: "Sends for these entities take the direct way again. What waits in the backlog is for the syphon." },
  start_syphon: { label: "Start syphon", fields: ["rate"],
    text: "Waits until the primary answers, and brings home what the backlog holds." },
  pause_syphon: { label: "Pause syphon", fields: [], text: "Tasks that drain stop within seconds and wait off the worker. Nothing is lost; sends go on." },
  resume_syphon: { label: "Resume syphon", fields: [], text: "Tasks that wait go on." },
  throttle_syphon: { label: "Throttle", fields: ["rate"], text: "Limits all tasks of a drain together, also while they run. No number means no limit." },
  redrive: { label: "Re-drive dead letters", fields: ["rate"], text: "Moves the dead letters of the backlog queues to their entities, once the cause is mended." },
  provision: { label: "Provision", fields: ["plan_only"], text: "Creates the backlog queues that are missing, and touches nothing else." },
  drill: { label: "Start a drill", danger: true, fields: ["entities", "messages"],
    text: "Fails these entities over on purpose, sends marked messages, fails back, drains and judges. What applications send meanwhile arrives when it ends." },
  plan_cleanup: { label: "Plan cleanup", fields: ["what"], text: "Looks which backlog queues could go. Nothing is deleted before a person has approved it under Required actions." },
};
const ORDER = ["fail_over", "fail_back", "start_syphon", "pause_syphon", "resume_syphon", "throttle_syphon", "redrive", "provision", "drill", "plan_cleanup"];

/** The buttons of a pair. */
export function toolbar(pair, mayAct, open) {
  const hidden = pair.syphon.paused ? "pause_syphon" : "resume_syphon";
  const known = new Map(pair.actions.map((action) => [action.name, action]));
  return h("div", { class: "toolbar", role: "group", "aria-label": `Actions on ${pair.conn_id}` },
    ORDER.filter((name) => name !== hidden && known.has(name)).map((name) => {
      const problem = mayAct ? known.get(name).problem : "you may look, not act: it takes the right to edit assets";
      return h("button", {
        type: "button", key: name, class: FORMS[name].danger ? "danger" : null, "data-action": name,
        "aria-disabled": problem === null ? null : "true", title: problem,
        onclick: () => (problem === null ? open(pair, name) : open(pair, name, problem)),
      }, `${FORMS[name].label} …`);
    }));
}

/** Opens the dialog of an action; `done` is told what was answered. */
export function ask(dialog, pair, name, { problem = null, done }) {
  const form = FORMS[name];
  const close = () => dialog.close();
  if (problem !== null) {
    show(dialog, h("div", { key: "problem" },
      h("h2", { id: "dialog-title" }, form.label), h("p", {}, `This cannot be done now: ${problem}.`),
      h("div", { class: "buttons" }, h("button", { type: "button", autofocus: true, onclick: close }, "Close"))));
  } else {
    show(dialog, h("form", { key: `${pair.conn_id}/${name}/${Date.now()}`, novalidate: true, onsubmit: (event) => submit(event, pair, name, { dialog, done }) },
      h("h2", { id: "dialog-title" }, `${form.label}: ${pair.conn_id}`),
      h("p", {}, form.text),
      form.fields.map((field) => FIELDS[field](pair, name)),
      h("label", {}, "Why, for the record", h("textarea", { name: "reason", rows: 2, maxlength: 500, required: true, autofocus: form.fields.length === 0 })),
      h("p", { class: "notice bad", role: "alert", hidden: true }),
      h("div", { class: "buttons" },
        h("button", { type: "button", onclick: close }, "Cancel"),
        h("button", { type: "submit", class: form.danger ? "danger main" : "main" }, form.label))));
  }
  dialog.showModal();
}

const FIELDS = {
  entities: (pair, action) => {
    const wanted = action === "fail_back" ? "failed_over" : null;
    const names = pair.entities.filter((entity) => wanted === null || entity.state === wanted).map((entity) => entity.entity);
    return h("fieldset", {}, h("legend", {}, "Queues and topics"),
      names.slice(0, 100).map((entity) => h("label", { class: "choice" },
        h("input", { type: "checkbox", name: "entities", value: entity, checked: names.length === 1 }), h("code", {}, entity))),
      h("label", {}, "Others, with commas", h("input", { type: "text", name: "others", autocomplete: "off" })));
  },
  hold_minutes: () => h("label", {}, "For at least, minutes", h("input", { type: "number", name: "hold_minutes", min: 0, max: 10080, value: 60 })),
  messages: () => h("label", {}, "Marked messages for each", h("input", { type: "number", name: "messages", min: 1, max: 10000, value: 10 })),
  rate: (pair, action) => h("label", {}, "Messages a second, at most", h("input", {
    type: "number", name: "rate", min: 0.1, step: "any", placeholder: "no limit", value: action === "throttle_syphon" ? pair.syphon.rate : null,
  })),
  plan_only: () => h("label", { class: "choice" }, h("input", { type: "checkbox", name: "plan_only" }), "Only tell the plan"),
  what: () => h("label", {}, "Which queues", h("select", { name: "what" },
    h("option", { value: "extra" }, "those beyond the number in use"), h("option", { value: "all" }, "all of this pair"))),
};

function read(form, name) {
  const given = new FormData(form);
  const body = { reason: given.get("reason").trim() };
  for (const field of FORMS[name].fields) {
    if (field === "entities") {
      const others = given.get("others").split(",").map((each) => each.trim()).filter((each) => each !== "");
      body.entities = [...new Set([...given.getAll("entities"), ...others])];
    } else if (field === "plan_only") body.plan_only = given.get(field) !== null;
    else if (field === "what") body.what = given.get(field);
    else if (given.get(field) !== "") body[field] = Number(given.get(field));
  }
  return body;
}

async function submit(event, pair, name, { dialog, done }) {
  event.preventDefault();
  const form = event.target;
  const alert = form.querySelector("[role=alert]");
  const button = form.querySelector("[type=submit]");
  const fail = (text) => {
    alert.textContent = text;
    alert.hidden = false;
    button.disabled = false;
  };
  const body = read(form, name);
  if (body.reason === "") {
    form.elements.reason.focus();
    fail("Say why: it is kept with what is done.");
    return;
  }
  button.disabled = true;
  try {
    const answer = await fetch(`api/pairs/${encodeURIComponent(pair.conn_id)}/actions/${name}`, {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
    });
    const told = await answer.json();
    if (!answer.ok) {
      fail(problemOf(told, answer.status));
      return;
    }
    dialog.close();
    done(FORMS[name].label, told);
  } catch (error) {
    fail(`The server does not answer: ${error.message}`);
  }
}

function problemOf(told, status) {
  if (Array.isArray(told.detail)) return told.detail.map(({ field, message }) => `${field}: ${message}`).join("; ");
  return `${told.detail ?? "It was refused"} (${status})`;
}
