// Builds elements and brings the page up to date. Values become text or attributes, never markup.

const SVG = "http://www.w3.org/2000/svg";
const DRAWN = new Set(["svg", "rect", "line", "path", "g", "text", "title", "desc"]);

/**
 * An element. `attributes` whose value is null, undefined or false are left out; `on…` are listeners; `key` tells
 * elements of a list apart. `children` are elements, texts, numbers, or lists of them.
 */
export function h(name, attributes = {}, ...children) {
  const element = DRAWN.has(name) && !(name === "title" && attributes.html)
    ? document.createElementNS(SVG, name)
    : document.createElement(name);
  for (const [attribute, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (attribute.startsWith("on")) listen(element, attribute.slice(2), value);
    else element.setAttribute(attribute === "key" ? "data-key" : attribute, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

// Listeners are kept by name, so that an element that stays gets those of the element that it becomes.
function listen(element, type, listener) {
  element.heard ??= {};
  element.heard[type] = listener;
}

document.addEventListener("click", (event) => hear("click", event));
document.addEventListener("input", (event) => hear("input", event));
document.addEventListener("submit", (event) => hear("submit", event));

function hear(type, event) {
  for (let at = event.target; at instanceof Element; at = at.parentNode) {
    const listener = at.heard?.[type];
    if (listener) {
      listener(event);
      return;
    }
  }
}

/** Makes the children of `parent` those that are given; what is the same stays, with its focus and its state. */
export function show(parent, ...children) {
  const wanted = children.flat(Infinity).filter((child) => child instanceof Node);
  const keyed = new Map();
  for (const child of parent.children) {
    const key = child.getAttribute("data-key");
    if (key !== null) keyed.set(key, child);
  }
  let at = parent.firstChild;
  for (const child of wanted) {
    const key = child instanceof Element ? child.getAttribute("data-key") : null;
    let present = key === null ? at : keyed.get(key) ?? null;
    if (key === null && present instanceof Element && present.getAttribute("data-key") !== null) present = null;
    if (present !== null && alike(present, child)) {
      if (present !== at) parent.insertBefore(present, at);
      become(present, child);
      at = present.nextSibling;
    } else {
      parent.insertBefore(child, at);
    }
  }
  while (at !== null) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function alike(one, two) {
  return one.nodeType === two.nodeType && one.nodeName === two.nodeName;
}

function become(present, wanted) {
  if (present.nodeType === Node.TEXT_NODE) {
    if (present.data !== wanted.data) present.data = wanted.data;
    return;
  }
  for (const { name } of [...present.attributes]) {
    // Whether something is unfolded is the reader's choice.
    if (!wanted.hasAttribute(name) && !(name === "open" && present.nodeName === "DETAILS")) present.removeAttribute(name);
  }
  for (const { name, value } of [...wanted.attributes]) {
    if (name === "open" && present.nodeName === "DETAILS") continue;
    if (present.getAttribute(name) !== value) present.setAttribute(name, value);
  }
  present.heard = wanted.heard;
  show(present, [...wanted.childNodes]);
}

const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];

/** A length of time in words, two units at most. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "unknown";
  let left = Math.max(0, Math.round(seconds));
  const parts = [];
  for (const [unit, size] of UNITS) {
    const count = Math.floor(left / size);
    if (count > 0 || (unit === "s" && parts.length === 0)) {
      parts.push(`${count} ${unit}`);
      left -= count * size;
    }
    if (parts.length === 2) break;
  }
  return parts.join(" ");
}

/** A moment: how long ago, and when exactly for who points at it or hears it. */
export function moment(at, now, { suffix = " ago" } = {}) {
  if (at === null || at === undefined) return h("span", { class: "faint" }, "never");
  const exact = new Date(at * 1000).toISOString().replace("T", " ").slice(0, 19) + " UTC";
  return h("time", { datetime: new Date(at * 1000).toISOString(), title: exact }, `${duration(now - at)}${suffix}`);
}

/** The moment as a clock shows it, in the reader's own time. */
export function clock(at) {
  const when = new Date(at * 1000);
  const text = when.toLocaleString([], { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" });
  return h("time", { datetime: when.toISOString(), title: when.toISOString() }, text);
}

export const count = (number) => Number(number).toLocaleString("en");

export function bytes(number) {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let value = Number(number);
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? value : value.toFixed(1)} ${units[unit]}`;
}

export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;
