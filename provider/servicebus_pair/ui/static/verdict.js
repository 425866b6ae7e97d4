// The overall state of a pair in one sentence; the most severe problem first.

import { formatClock, formatNumber, plural } from "./elements.js";
import { isFilling, spooledMessages, unseenMessages } from "./rungs.js";

const countEntities = (list, one, many) => plural(list.length, `entity ${one}`, `entities ${many}`);

/** Returns the kind ("bad", "warn", "calm" or "good") and the sentence. */
export function verdict(pair) {
  return outage(pair) ?? warning(pair) ?? leftover(pair)
    ?? (pair.primary.reachable === null || pair.backlog.counted_at === null ? ["calm", "Checking …"]
      : ["good", "Healthy: sends go to the primary, the backlog is empty."]);
}

function outage(pair) {
  const failedOver = pair.entities.filter((entity) => entity.state === "failed_over");
  const secondaryDown = pair.secondary.reachable === false;
  if (pair.problem !== null) return ["bad", `The connection cannot be used: ${pair.problem}`];
  if (failedOver.length > 0) {
    const manually = failedOver.every((entity) => entity.by_hand) ? " manually" : "";
    const waiting = pair.backlog.messages > 0 ? `, where ${plural(pair.backlog.messages, "message waits", "messages wait")}` : "";
    const effect = secondaryDown ? `secondary ${pair.secondary.name} is unreachable too, so sends ${lastResort(pair)}` : `sends go to the backlog${waiting}`;
    return ["bad", `${countEntities(failedOver, "is", "are")} failed over${manually}: ${effect}.`];
  }
  const failingBack = pair.entities.filter((entity) => entity.state === "failing_back");
  if (failingBack.length > 0) return ["warn", `${countEntities(failingBack, "is", "are")} failing back: sends wait until the backlog is empty.`];
  if (pair.primary.reachable !== false) return null;
  if (secondaryDown) return ["bad", `${pair.primary.name} and ${pair.secondary.name} are both unreachable: sends ${lastResort(pair)}.`];
  const diverted = divertedText(pair);
  return ["bad", `Primary ${pair.primary.name} unreachable since ${formatClock(pair.primary.since)}${diverted === null ? "" : `; ${diverted}`}.`];
}

function lastResort(pair) {
  if (!pair.spool.configured) return "fail";
  const waiting = spooledMessages(pair);
  return `go to the spool${waiting > 0 ? `, where ${plural(waiting, "message waits", "messages wait")}` : ""}`;
}

function warning(pair) {
  if (isFilling(pair.spool)) return ["bad", `The spool is ${Math.round(100 * pair.spool.size_bytes / pair.spool.limit_bytes)} % full: what it cannot take makes sends fail.`];
  const suspect = pair.entities.filter((entity) => entity.state === "suspect");
  if (suspect.length > 0) return ["warn", `${countEntities(suspect, "is", "are")} suspect: sends are failing.`];
  if (pair.secondary.reachable === false) return ["warn", `Secondary ${pair.secondary.name} unreachable since ${formatClock(pair.secondary.since)}: ${pair.spool.configured ? "a failover goes to the spool" : "failover is not possible"}.`];
  if (pair.backlog.error !== null) return ["warn", `The backlog cannot be counted: ${pair.backlog.error}.`];
  if (pair.spool.error !== null) return ["warn", `The spool cannot be read: ${pair.spool.error}.`];
  return null;
}

function leftover(pair) {
  const { backlog } = pair;
  const diverted = divertedText(pair);
  if (diverted !== null) return ["warn", `${diverted}.`];
  const spooled = spooledMessages(pair);
  if (spooled > 0) return ["warn", `${plural(spooled, "message")} still in the spool${backlog.messages > 0 ? `, and ${formatNumber(backlog.messages)} in the backlog` : ""}: a syphon or the recovery moves them.`];
  const [other, ...others] = pair.spool.elsewhere;
  if (other !== undefined) return ["warn", `${plural(unseenMessages(pair), "message")} in spool ${other.name}${others.length > 0 ? ` and ${others.length} more` : ""}, which this server cannot see: a syphon on that machine moves them.`];
  if (backlog.messages > 0) return ["warn", `Primary is healthy; ${plural(backlog.messages, "message")} still in the backlog.`];
  if (backlog.missing.length > 0) return ["warn", `${plural(backlog.missing.length, "backlog queue is", "backlog queues are")} missing: provision the pair.`];
  if (backlog.dead_lettered > 0) return ["warn", `${plural(backlog.dead_lettered, "dead letter")}: fix the cause, then re-drive.`];
  if (pair.syphon.paused) return ["warn", "The syphon is paused: diverted messages stay in the backlog."];
  return null;
}

function divertedText(pair) {
  const diverted = pair.entities.filter((entity) => entity.state === "diverted");
  return diverted.length === 0 ? null : `${countEntities(diverted, "has", "have")} messages in the backlog from a sender outside Airflow`;
}
