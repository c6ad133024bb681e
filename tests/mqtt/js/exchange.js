// What a device does with MQTT.js: node exchange.js URL VERSION TOPIC EVENT. `TOPIC` begins the
// topics that it uses, `EVENT` is the JSON of an event of the project `meadow`. Prints what it got.
import mqtt from "mqtt";

const [url, version, topic, event] = process.argv.slice(2);
const options = {
  protocolVersion: Number(version),
  clientId: `js-${process.pid}`,
  clean: false,
  ...(version === "5" ? { properties: { sessionExpiryInterval: 600 } } : {}),
};
const connect = () => mqtt.connectAsync(url, options);
const codeOf = async (topic, payload) => {
  try {
    await client.publishAsync(topic, payload, { qos: 1 });
    return 0;
  } catch (error) {
    return error.code;
  }
};

let client = await connect();
const granted = await client.subscribeAsync(`${topic}/#`, { qos: 2 });
const received = [];
const all = new Promise((done) => {
  client.on("message", (from, payload, packet) => {
    received.push([from, payload.toString(), packet.qos]);
    if (received.length === 3) done();
  });
});
for (const qos of [0, 1, 2]) await client.publishAsync(`${topic}/${qos}`, `n${qos}`, { qos });
await all;
const codes = [await codeOf("meadow", event), await codeOf("meadow", "{}")];
await client.endAsync();

const writer = await mqtt.connectAsync(url, { protocolVersion: Number(version) });
for (const qos of [1, 2]) await writer.publishAsync(`${topic}/away`, `a${qos}`, { qos });
await writer.endAsync();
const away = [];
client = mqtt.connect(url, options);
await new Promise((done) => {
  client.on("message", (from, payload) => {
    away.push(payload.toString());
    if (away.length === 2) done();
  });
});
await client.endAsync();
console.log(JSON.stringify({ granted: granted[0].qos, received, codes, away }));
