// Creates elements, updates the DOM in place, and formats values. Values become text or attributes, never markup.

const SVG = "http://www.w3.org/2000/svg";
const SVG_ELEMENTS = new Set(["svg", "rect", "line", "path", "g", "text", "title", "desc"]);

/**
 * Creates an element. Attributes that are null, undefined or false are omitted; `on…` attributes are listeners; `key`
 * identifies an element among its siblings. Children are elements, strings, numbers, or nested lists of them.
 */
export function h(name, attributes = {}, ...children) {
  const element = SVG_ELEMENTS.has(name)
    ? document.createElementNS(SVG, name)
    : document.createElement(name);
  for (const [attribute, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (attribute.startsWith("on")) addListener(element, attribute.slice(2), value);
    else element.setAttribute(attribute === "key" ? "data-key" : attribute, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

// Listeners are properties called by delegation, so that patch() can replace them on an element that stays.
function addListener(element, type, listener) {
  element.listeners ??= {};
  element.listeners[type] = listener;
}

for (const type of ["click", "input", "submit"]) document.addEventListener(type, (event) => dispatch(type, event));

function dispatch(type, event) {
  for (let element = event.target; element instanceof Element; element = element.parentNode) {
    const listener = element.listeners?.[type];
    if (listener) {
      listener(event);
      return;
    }
  }
}

/** Replaces the children of `parent`; reuses existing elements so that focus and state survive. */
export function render(parent, ...children) {
  const wanted = children.flat(Infinity).filter((child) => child instanceof Node);
  const keyed = new Map();
  for (const child of parent.children) {
    const key = child.getAttribute("data-key");
    if (key !== null) keyed.set(key, child);
  }
  let next = parent.firstChild;
  for (const child of wanted) {
    const key = child instanceof Element ? child.getAttribute("data-key") : null;
    let existing = key === null ? next : keyed.get(key) ?? null;
    if (key === null && existing instanceof Element && existing.getAttribute("data-key") !== null) existing = null;
    if (existing !== null && isSameKind(existing, child)) {
      if (existing !== next) parent.insertBefore(existing, next);
      patch(existing, child);
      next = existing.nextSibling;
    } else {
      parent.insertBefore(child, next);
    }
  }
  while (next !== null) {
    const following = next.nextSibling;
    next.remove();
    next = following;
  }
}

function isSameKind(one, other) {
  return one.nodeType === other.nodeType && one.nodeName === other.nodeName;
}

function patch(existing, wanted) {
  if (existing.nodeType === Node.TEXT_NODE) {
    if (existing.data !== wanted.data) existing.data = wanted.data;
    return;
  }
  // The user decides whether <details> is open.
  const isUserState = (name) => name === "open" && existing.nodeName === "DETAILS";
  for (const { name } of [...existing.attributes]) {
    if (!wanted.hasAttribute(name) && !isUserState(name)) existing.removeAttribute(name);
  }
  for (const { name, value } of [...wanted.attributes]) {
    if (!isUserState(name) && existing.getAttribute(name) !== value) existing.setAttribute(name, value);
  }
  existing.listeners = wanted.listeners;
  render(existing, [...wanted.childNodes]);
}

const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];

/** Formats seconds with at most two units. */
export function formatDuration(seconds) {
  if (seconds === null || seconds === undefined) return "unknown";
  let remaining = Math.max(0, Math.round(seconds));
  const parts = [];
  for (const [unit, size] of UNITS) {
    const count = Math.floor(remaining / size);
    if (count > 0 || (unit === "s" && parts.length === 0)) {
      parts.push(`${count} ${unit}`);
      remaining -= count * size;
    }
    if (parts.length === 2) break;
  }
  return parts.join(" ");
}

/** Returns a time as its distance from now, with the exact UTC time as a tooltip. */
export function relativeTime(at, now, { suffix = " ago" } = {}) {
  if (at === null || at === undefined) return h("span", { class: "muted" }, "never");
  const exact = new Date(at * 1000).toISOString().replace("T", " ").slice(0, 19) + " UTC";
  return h("time", { datetime: new Date(at * 1000).toISOString(), title: exact }, `${formatDuration(now - at)}${suffix}`);
}

/** Returns a time as date and time in the user's time zone. */
export function localTime(at) {
  const date = new Date(at * 1000);
  const text = date.toLocaleString([], { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" });
  return h("time", { datetime: date.toISOString(), title: date.toISOString() }, text);
}

/** Formats a time as hours and minutes in the user's time zone. */
export const formatClock = (at) => new Date(at * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });

export const formatNumber = (number) => Number(number).toLocaleString("en");

export function formatBytes(number) {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let value = Number(number);
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? value : value.toFixed(1)} ${units[unit]}`;
}

export const plural = (number, one, many = `${one}s`) => `${formatNumber(number)} ${number === 1 ? one : many}`;
