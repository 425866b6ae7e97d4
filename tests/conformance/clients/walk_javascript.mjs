// @azure/service-bus: queues, sessions, topics and administration of messages.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import tls from "node:tls";
import { pathToFileURL } from "node:url";

const { MATRIX_PORT: port, MATRIX_KEY: key } = process.env;
const host = "matrix.servicebus.windows.net";

// Like the Python walks: the namespace's name leads to the embedded service, whatever the port.
const connect = tls.connect;
tls.connect = (...given) => {
  const options = given.find((each) => typeof each === "object");
  const connected = given.find((each) => typeof each === "function");
  return connect({ ...options, host: "127.0.0.1", port: Number(port), servername: host }, connected);
};

const installed = createRequire(process.env.MATRIX_FOLDER + "/index.js").resolve("@azure/service-bus");
const { ServiceBusClient, delay } = await import(pathToFileURL(installed)).then((loaded) => loaded.default ?? loaded);

async function step(name, action) {
  const report = { step: name, passed: true };
  try {
    await action();
  } catch (error) {
    Object.assign(report, { passed: false, reason: `${error.name}: ${error.message}`.slice(0, 300) });
  }
  console.log(JSON.stringify(report));
}

const client = new ServiceBusClient(
  `Endpoint=sb://${host}/;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=${key}`,
);
const sender = client.createSender("q");
const receiver = client.createReceiver("q");
const receive = async (from = receiver) => (await from.receiveMessages(1, { maxWaitTimeInMs: 8000 }))[0];

await step("send and receive", async () => {
  await sender.sendMessages({ body: "one", messageId: "m1", applicationProperties: { minutes: 90 } });
  const message = await receive();
  assert.deepEqual([message.body, message.messageId, message.applicationProperties.minutes], ["one", "m1", 90]);
  await receiver.completeMessage(message);
});
await step("a batch, and peek", async () => {
  const batch = await sender.createMessageBatch();
  for (const body of ["a", "b", "c"]) batch.tryAddMessage({ body });
  await sender.sendMessages(batch);
  assert.deepEqual((await receiver.peekMessages(10)).map((each) => each.body), ["a", "b", "c"]);
});
await step("abandon and receive again", async () => {
  await receiver.abandonMessage(await receive());
  const again = await receive();
  assert.deepEqual([again.body, again.deliveryCount], ["a", 1]);
  await receiver.completeMessage(again);
});
await step("defer and receive by number", async () => {
  const message = await receive();
  await receiver.deferMessage(message);
  const [deferred] = await receiver.receiveDeferredMessages(message.sequenceNumber);
  await receiver.completeMessage(deferred);
});
await step("dead-letter", async () => {
  await receiver.deadLetterMessage(await receive(), { deadLetterReason: "late" });
  const dead = client.createReceiver("q", { subQueueType: "deadLetter" });
  const message = await receive(dead);
  assert.equal(message.deadLetterReason, "late");
  await dead.completeMessage(message);
});
await step("schedule and cancel", async () => {
  const [number] = await sender.scheduleMessages([{ body: "later" }], new Date(Date.now() + 3_600_000));
  await sender.cancelScheduledMessages(number);
});
await step("renew a lock", async () => {
  await sender.sendMessages({ body: "long" });
  const message = await receive();
  await receiver.renewMessageLock(message);
  await receiver.completeMessage(message);
});
await step("sessions and their state", async () => {
  await client.createSender("sessions").sendMessages([{ body: "one", sessionId: "js" }, { body: "two", sessionId: "js" }]);
  const session = await client.acceptSession("sessions", "js");
  await session.setSessionState("half");
  assert.equal(String(await session.getSessionState()), "half");
  for (const body of ["one", "two"]) {
    const message = await receive(session);
    assert.equal(message.body, body);
    await session.completeMessage(message);
  }
  await session.close();
});
await step("topic, subscription, a processor", async () => {
  const subscribed = client.createReceiver("t", "s");
  const seen = [];
  const processor = subscribed.subscribe({
    processMessage: async (message) => void seen.push(message.body),
    processError: async () => {},
  });
  await client.createSender("t").sendMessages({ body: "news" });
  for (let waited = 0; seen.length === 0 && waited < 8000; waited += 50) await delay(50);
  await processor.close();
  assert.deepEqual(seen, ["news"]);
});
await step("close", () => client.close());
