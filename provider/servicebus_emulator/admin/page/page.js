// The page of one namespace. Everything from the service is set as text, never as HTML.

const REFRESH_MS = 2000;
const POLICY = "RootManageSharedAccessKey";
const QUEUES = [["main", "Messages"], ["dead-letter", "Dead-letter queue"], ["transfer-dead-letter", "Transfer dead-letter queue"]];

const byId = (id) => document.getElementById(id);
const state = { key: sessionStorage.getItem("key"), entity: null, queue: "main", messages: [], more: false, shown: "" };

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children.filter((child) => child !== null));
  return made;
}

/** A shared access signature for the whole namespace, made in the browser. */
async function signature() {
  const resource = encodeURIComponent(`${location.protocol}//${location.host}/`);
  const expires = Math.floor(Date.now() / 1000) + 300;
  const encode = (text) => new TextEncoder().encode(text);
  const key = await crypto.subtle.importKey("raw", encode(state.key), { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  const signed = await crypto.subtle.sign("HMAC", key, encode(`${resource}\n${expires}`));
  const text = btoa(String.fromCharCode(...new Uint8Array(signed)));
  return `SharedAccessSignature sr=${resource}&sig=${encodeURIComponent(text)}&se=${expires}&skn=${POLICY}`;
}

async function ask(path, { method = "GET", body } = {}) {
  const headers = {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (state.key !== null) headers.Authorization = await signature();
  const response = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  const document = await response.json().catch(() => ({}));
  if (response.status === 401) {
    sessionStorage.removeItem("key");
    state.key = null;
    byId("login").hidden = false;
    byId("content").hidden = true;
  }
  if (!response.ok) throw new Error(document.error ?? `HTTP ${response.status}`);
  return document;
}

/** Run an action and show its error, if any, where a screen reader announces it, until the next action of its kind. */
async function attempt(action, { kind = "action" } = {}) {
  const shown = byId("error");
  try {
    await action();
    if (shown.dataset.kind === kind) shown.textContent = "";
  } catch (error) {
    shown.textContent = error instanceof TypeError ? "The emulator does not answer." : error.message;
    shown.dataset.kind = kind;
  }
}

function showNamespaces({ namespace, namespaces }) {
  document.title = `${namespace} - Service Bus emulator`;
  byId("title").textContent = namespace;
  const others = namespaces.filter((each) => each.name !== namespace);
  byId("namespaces").replaceChildren(...others.flatMap(({ name, port }) => {
    const url = new URL(location.href);
    url.port = port;
    return [element("a", { href: url.href, textContent: name }), " "];
  }));
}

function showEntities(entities) {
  byId("no-entities").hidden = entities.length > 0;
  byId("entities").replaceChildren(...entities.map((each) => {
    const open = element("button", { className: "link", textContent: each.path });
    if (each.path === state.entity?.path) open.setAttribute("aria-current", "true");
    open.addEventListener("click", () => attempt(() => choose(each)));
    const notes = [each.kind, each.sessions ? "sessions" : null, each.status === "Active" ? null : each.status];
    const dead = each.dead_lettered + each.transfer_dead_lettered;
    return element("tr", {},
      element("td", {}, open, element("div", { className: "muted", textContent: notes.filter(Boolean).join(", ") })),
      element("td", { className: "number", textContent: each.active }),
      element("td", { className: "number", textContent: each.scheduled }),
      element("td", { className: dead > 0 ? "number bad" : "number", textContent: dead }));
  }));
}

async function choose(entity) {
  Object.assign(state, { entity, queue: "main" });
  await refresh();
  await loadMessages();
}

async function loadMessages({ more = false } = {}) {
  const { entity, queue } = state;
  const holds = entity !== null && entity.kind !== "topic";
  byId("entity").hidden = entity === null;
  byId("send").hidden = entity === null || entity.kind === "subscription";
  if (entity === null) return;
  byId("entity-title").textContent = entity.path;
  byId("queues").replaceChildren(...(holds ? QUEUES : []).map(([name, label]) => {
    const button = element("button", { textContent: label });
    button.setAttribute("aria-pressed", String(name === queue));
    button.addEventListener("click", () => attempt(() => { state.queue = name; return loadMessages(); }));
    return button;
  }));
  let found = { messages: [], more: false };
  const before = more ? state.messages : [];
  if (holds) {
    const after = before.length > 0 ? before[before.length - 1].sequence_number : 0;
    const query = new URLSearchParams({ entity: entity.path, queue, after });
    found = await ask(`/$page/messages?${query}`);
  }
  if (state.entity?.path !== entity.path || state.queue !== queue) return;
  state.messages = [...before, ...found.messages];
  byId("more").hidden = !found.more;
  const shown = JSON.stringify([entity.path, queue, state.messages]);
  if (shown !== state.shown) {
    state.shown = shown;
    showMessages(holds);
  }
}

function showMessages(holds) {
  const empty = holds ? "No messages." : "A topic keeps no messages: see its subscriptions.";
  const nodes = state.messages.map(showMessage);
  byId("messages").replaceChildren(...(nodes.length > 0 ? nodes : [element("p", { className: "muted", textContent: empty })]));
}

function showMessage(message) {
  const head = element("div", { className: "bar" }, element("strong", { textContent: `#${message.sequence_number}` }),
    element("span", { className: "muted", textContent: [message.state, message.enqueued, `${message.size} bytes`,
      `delivered ${message.delivery_count} times`].join(" · ") }));
  if (state.queue === "main" && message.state === "active") {
    const button = element("button", { textContent: "Dead-letter" });
    button.setAttribute("aria-label", `Dead-letter message ${message.sequence_number}`);
    button.addEventListener("click", () => attempt(async () => {
      const body = { entity: state.entity.path, sequence_number: message.sequence_number };
      await ask("/$page/dead-letters", { method: "POST", body });
      button.blur();
      await refresh();
    }));
    head.append(button);
  }
  // A property of the sender may have any name, that of a fact of ours as well.
  const facts = [...Object.entries({ "message id": message.message_id, session: message.session_id, subject: message.subject,
    "content type": message.content_type, due: message.due, reason: message.dead_letter_reason,
    description: message.dead_letter_description }), ...Object.entries(message.properties).map(([name, value]) =>
    [`property ${name}`, value])].filter(([, value]) => value !== null);
  return element("div", { className: "message" }, head,
    element("div", { className: "muted", textContent: facts.map(([name, value]) => `${name}: ${value}`).join(" · ") }),
    element("pre", { textContent: message.body }));
}

function showFaults(faults) {
  if (faults.length === 0) {
    byId("faults").replaceChildren(element("p", { className: "muted", textContent: "None is set." }));
    return;
  }
  byId("faults").replaceChildren(...faults.map((fault) => {
    const { id, kind, strikes, ...rest } = fault;
    const details = Object.entries(rest).filter(([, value]) => value !== null).map(([name, value]) => `${name}: ${value}`);
    const clear = element("button", { textContent: "Clear" });
    clear.setAttribute("aria-label", `Clear fault ${id}`);
    clear.addEventListener("click", () => attempt(async () => {
      await ask(`/$faults/${id}`, { method: "DELETE" });
      clear.blur();
      await refresh();
    }));
    return element("div", { className: "message" }, element("div", { className: "bar" },
      element("span", {}, element("strong", { textContent: kind }), ` struck ${strikes} times`), clear),
      element("div", { className: "muted", textContent: details.join(" · ") }));
  }));
}

async function refresh() {
  const overview = await ask("/$page/overview");
  byId("login").hidden = true;
  byId("content").hidden = false;
  showNamespaces(overview);
  state.entity = overview.entities.find((each) => each.path === state.entity?.path) ?? null;
  const focused = document.activeElement?.closest?.("#entities") ? document.activeElement.textContent : null;
  showEntities(overview.entities);
  if (focused !== null) [...byId("entities").querySelectorAll("button")].find((each) => each.textContent === focused)?.focus();
  const kinds = document.forms["fault-form"].elements.kind;
  if (kinds.options.length === 0) kinds.append(...overview.fault_kinds.map((kind) => new Option(kind)));
  if (!byId("faults").contains(document.activeElement) || byId("faults").children.length === 0) {
    showFaults((await ask("/$faults")).faults);
  }
  // Further pages that were opened stay as they are.
  if (state.messages.length <= 50 && !byId("messages").contains(document.activeElement)) await loadMessages();
}

byId("login-form").addEventListener("submit", (event) => {
  event.preventDefault();
  state.key = event.target.elements.key.value;
  attempt(async () => {
    await refresh();
    sessionStorage.setItem("key", state.key);
  });
});

byId("send-form").addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(async () => {
    const form = Object.fromEntries(new FormData(event.target));
    const properties = form.properties === "" ? {} : JSON.parse(form.properties);
    await ask("/$page/messages", { method: "POST", body: { ...form, properties, entity: state.entity.path } });
    event.target.elements.message_id.value = "";
    await refresh();
  });
});

byId("fault-form").addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(async () => {
    const form = Object.fromEntries([...new FormData(event.target)].filter(([, value]) => value !== ""));
    for (const name of ["probability", "count", "duration", "delay"]) if (name in form) form[name] = Number(form[name]);
    await ask("/$faults", { method: "POST", body: form });
    document.activeElement.blur();
    await refresh();
  });
});

byId("more").addEventListener("click", () => attempt(() => loadMessages({ more: true })));
setInterval(() => { if (!document.hidden && byId("login").hidden) attempt(refresh, { kind: "refresh" }); }, REFRESH_MS);
attempt(refresh, { kind: "refresh" });
