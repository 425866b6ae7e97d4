// Toolbar and dialogs of the actions. Each dialog asks for a reason.

import { h, render } from "./elements.js";

const ACTIONS = {
  fail_over: { label: "Fail over", danger: true, fields: ["entities", "hold_minutes"],
    text: "Sends to these entities go to the backlog until you fail back, or until the hold time has passed and the primary responds." },
  fail_back: { label: "Fail back", fields: ["entities"],
    text: "Sends to these entities go to the primary again. Start the syphon to drain the backlog." },
  start_syphon: { label: "Start syphon", fields: ["rate"],
    text: "Waits until the primary responds, then moves the backlog to it." },
  pause_syphon: { label: "Pause syphon", fields: [], text: "Drain tasks stop within seconds and wait in the triggerer. No message is lost; sends continue." },
  resume_syphon: { label: "Resume syphon", fields: [], text: "Paused drain tasks continue." },
  throttle_syphon: { label: "Throttle", fields: ["rate"], text: "Limits the total rate of all drain tasks, including running ones. Leave empty for no limit." },
  redrive: { label: "Re-drive dead letters", fields: ["rate"], text: "Moves dead letters of the backlog queues to their entities. Fix the cause first." },
  provision: { label: "Provision", fields: ["plan_only"], text: "Creates missing backlog queues. Changes nothing else." },
  drill: { label: "Start a drill", danger: true, fields: ["entities", "messages"],
    text: "Fails these entities over on purpose, sends marked messages, fails back, drains and checks the result. Messages that applications send meanwhile arrive when the drill ends." },
  plan_cleanup: { label: "Plan cleanup", fields: ["what"], text: "Lists backlog queues that can be deleted. Nothing is deleted before somebody approves it under Required actions." },
};
const ORDER = ["fail_over", "fail_back", "start_syphon", "pause_syphon", "resume_syphon", "throttle_syphon", "redrive", "provision", "drill", "plan_cleanup"];

/** Returns the action buttons of a pair. */
export function toolbar(pair, mayAct, open) {
  const hidden = pair.syphon.paused ? "pause_syphon" : "resume_syphon";
  const available = new Map(pair.actions.map((action) => [action.name, action]));
  return h("div", { class: "toolbar", role: "group", "aria-label": `Actions on ${pair.conn_id}` },
    ORDER.filter((name) => name !== hidden && available.has(name)).map((name) => {
      const problem = mayAct ? available.get(name).problem : "you have read-only access; actions require permission to edit assets";
      return h("button", {
        type: "button", key: name, class: ACTIONS[name].danger ? "danger" : null, "data-action": name,
        "aria-disabled": problem === null ? null : "true", title: problem,
        onclick: () => open(pair, name, problem),
      }, `${ACTIONS[name].label} …`);
    }));
}

/** Opens the dialog of an action; calls `onSuccess` with the label and the response. */
export function openDialog(dialog, pair, name, { problem = null, onSuccess }) {
  const action = ACTIONS[name];
  const close = () => dialog.close();
  if (problem !== null) {
    render(dialog, h("div", { key: "problem" },
      h("h2", { id: "dialog-title" }, action.label), h("p", {}, `Not available: ${problem}.`),
      h("div", { class: "buttons" }, h("button", { type: "button", autofocus: true, onclick: close }, "Close"))));
  } else {
    render(dialog, h("form", { key: `${pair.conn_id}/${name}/${Date.now()}`, novalidate: true, onsubmit: (event) => submit(event, pair, name, { dialog, onSuccess }) },
      h("h2", { id: "dialog-title" }, `${action.label}: ${pair.conn_id}`),
      h("p", {}, action.text),
      action.fields.map((field) => FIELDS[field](pair, name)),
      h("label", {}, "Reason (for the audit log)", h("textarea", { name: "reason", rows: 2, maxlength: 500, required: true, autofocus: action.fields.length === 0 })),
      h("p", { class: "notice bad", role: "alert", hidden: true }),
      h("div", { class: "buttons" },
        h("button", { type: "button", onclick: close }, "Cancel"),
        h("button", { type: "submit", class: action.danger ? "danger main" : "main" }, action.label))));
  }
  dialog.showModal();
}

const FIELDS = {
  entities: (pair, action) => {
    const states = action === "fail_back" ? ["failed_over", "failing_back"] : null;
    const names = pair.entities.filter((entity) => states === null || states.includes(entity.state)).map((entity) => entity.entity);
    return h("fieldset", {}, h("legend", {}, "Queues and topics"),
      names.slice(0, 100).map((entity) => h("label", { class: "choice" },
        h("input", { type: "checkbox", name: "entities", value: entity, checked: names.length === 1 }), h("code", {}, entity))),
      h("label", {}, "Others, separated by commas", h("input", { type: "text", name: "others", autocomplete: "off" })));
  },
  hold_minutes: () => h("label", {}, "Hold for at least (minutes)", h("input", { type: "number", name: "hold_minutes", min: 0, max: 10080, value: 60 })),
  messages: () => h("label", {}, "Marked messages per entity", h("input", { type: "number", name: "messages", min: 1, max: 10000, value: 10 })),
  rate: (pair, action) => h("label", {}, "Maximum messages per second", h("input", {
    type: "number", name: "rate", min: 0.1, step: "any", placeholder: "no limit", value: action === "throttle_syphon" ? pair.syphon.rate : null,
  })),
  plan_only: () => h("label", { class: "choice" }, h("input", { type: "checkbox", name: "plan_only" }), "Show the plan only"),
  what: () => h("label", {}, "Queues", h("select", { name: "what" },
    h("option", { value: "extra" }, "extra queues only"), h("option", { value: "all" }, "all queues of this pair"))),
};

function readBody(form, name) {
  const values = new FormData(form);
  const body = { reason: values.get("reason").trim() };
  for (const field of ACTIONS[name].fields) {
    if (field === "entities") {
      const others = values.get("others").split(",").map((each) => each.trim()).filter((each) => each !== "");
      body.entities = [...new Set([...values.getAll("entities"), ...others])];
    } else if (field === "plan_only") body.plan_only = values.get(field) !== null;
    else if (field === "what") body.what = values.get(field);
    else if (values.get(field) !== "") body[field] = Number(values.get(field));
  }
  return body;
}

async function submit(event, pair, name, { dialog, onSuccess }) {
  event.preventDefault();
  const form = event.target;
  const alert = form.querySelector("[role=alert]");
  const button = form.querySelector("[type=submit]");
  const fail = (text) => {
    alert.textContent = text;
    alert.hidden = false;
    button.disabled = false;
  };
  const body = readBody(form, name);
  if (body.reason === "") {
    form.elements.reason.focus();
    fail("Enter a reason. It is stored in the audit log.");
    return;
  }
  button.disabled = true;
  try {
    const response = await fetch(`api/pairs/${encodeURIComponent(pair.conn_id)}/actions/${name}`, {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
    });
    const result = await response.json();
    if (!response.ok) {
      fail(errorText(result, response.status));
      return;
    }
    dialog.close();
    onSuccess(ACTIONS[name].label, result);
  } catch (error) {
    fail(`No response from the server: ${error.message}`);
  }
}

function errorText(result, status) {
  if (Array.isArray(result.detail)) return result.detail.map(({ field, message }) => `${field}: ${message}`).join("; ");
  return `${result.detail ?? "Request rejected"} (${status})`;
}
