// How a pair is, as one says it to somebody who asks in a hurry: the worst first.

import { plural } from "./elements.js";

const entities = (list, one, many) => plural(list.length, `entity ${one}`, `entities ${many}`);

/** One word for the colour and one sentence. */
export function verdict(pair) {
  return outage(pair) ?? trouble(pair) ?? leftovers(pair)
    ?? (pair.primary.reachable === null || pair.backlog.counted_at === null ? ["calm", "Looking …"]
      : ["good", "All is well: sends take the direct way, the backlog is empty."]);
}

function outage(pair) {
  const over = pair.entities.filter((entity) => entity.state === "failed_over");
  const cut = pair.secondary.reachable === false;
  if (pair.problem !== null) return ["bad", `Its connection cannot be used: ${pair.problem}`];
  if (over.length > 0) {
    const hand = over.every((entity) => entity.by_hand) ? ", by hand" : "";
    const way = cut ? `but the secondary ${pair.secondary.name} cannot be reached either: sends fail` : "sends go to the backlog";
    return ["bad", `${entities(over, "is", "are")} failed over${hand}${cut ? ", " : ": "}${way}.`];
  }
  if (pair.primary.reachable !== false) return null;
  if (cut) return ["bad", `Neither ${pair.primary.name} nor ${pair.secondary.name} can be reached.`];
  const seen = diverted(pair);
  return ["bad", `The primary ${pair.primary.name} cannot be reached${seen === null ? "" : `; ${seen}`}.`];
}

function trouble(pair) {
  const suspect = pair.entities.filter((entity) => entity.state === "suspect");
  if (suspect.length > 0) return ["warn", `${entities(suspect, "is", "are")} suspect: sends are failing.`];
  if (pair.secondary.reachable === false) return ["warn", `The secondary ${pair.secondary.name} cannot be reached: there is no way round.`];
  if (pair.backlog.error !== null) return ["warn", "The backlog cannot be counted: see there why."];
  return null;
}

function leftovers(pair) {
  const { backlog } = pair;
  const seen = diverted(pair);
  if (seen !== null) return ["warn", `${seen}.`];
  if (backlog.messages > 0) return ["warn", `Healthy again; ${plural(backlog.messages, "message")} still in the backlog.`];
  if (backlog.missing.length > 0) return ["warn", `${plural(backlog.missing.length, "backlog queue is", "backlog queues are")} missing: provision the pair.`];
  if (backlog.dead_lettered > 0) return ["warn", `${plural(backlog.dead_lettered, "dead letter needs", "dead letters need")} somebody: see why, mend it, and re-drive.`];
  if (pair.syphon.paused) return ["warn", "The syphon is paused: what comes into the backlog stays there."];
  return null;
}

function diverted(pair) {
  const found = pair.entities.filter((entity) => entity.state === "diverted");
  return found.length === 0 ? null : `${entities(found, "has", "have")} messages in the backlog, from a sender outside Airflow`;
}
