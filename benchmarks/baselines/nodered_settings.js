// Node-RED without editor and admin. The work of an event is a function flows find as `answer` or
// `counted`.
const fs = require('fs');
const path = require('path');
const tokens = new Map(Object.entries(
  JSON.parse(fs.readFileSync(path.join(__dirname, 'tokens.json'), 'utf8'))));
const kept = new Map([['count', 0]]);

let wasm;
function spin(payload) {
  wasm ??= new WebAssembly.Instance(
    new WebAssembly.Module(fs.readFileSync(path.join(__dirname, 'work.wasm')))).exports;
  new Uint8Array(wasm.memory.buffer).set(payload, 1024);
  return wasm.spin(1024, payload.length);
}

// Returns the result, or undefined when the token is not the publisher's.
function work(event) {
  const { pub_id: publisher, token, event_type: kind } = event.header;
  if (!token || tokens.get(publisher) !== token) return undefined;
  const payload = Buffer.from(event.payload, 'base64');
  if (kind === 'SPIN') return spin(payload);
  let sum = 0;
  for (const byte of payload) sum += byte;
  if (kind === 'KV') kept.set('sum', sum);
  if (kind !== 'TALLY') return sum;
  kept.set('count', kept.get('count') + 1);
  return kept.get('count');
}

// What to answer over HTTP to an event, or to a batch: a status and a body.
const good = { instanceID: 'node-red', code: 0, errMsg: '' };
function answer(body) {
  const message = JSON.parse(body);
  if (!message.events) {
    const result = work(message);
    return result === undefined ? [401, 'token'] : [201, { results: [good], result }];
  }
  const results = message.events.map(work);
  if (results.includes(undefined)) return [401, 'token'];
  return [201, results.map((result) => ({ wasmResults: [good], result }))];
}

// Over MQTT nobody is answered: the count of handled events is kept in a file of 8 bytes.
const count = Buffer.alloc(8);
const tally = process.env.TALLY ? fs.openSync(process.env.TALLY, 'r+') : -1;
function counted(message) {
  const handled = work(JSON.parse(message));
  if (handled === undefined) return;
  count.writeBigUInt64LE(BigInt(handled));
  fs.writeSync(tally, count, 0, 8, 0);
}

module.exports = {
  uiPort: Number(process.env.PORT), uiHost: '127.0.0.1', flowFile: 'flows.json', userDir: __dirname,
  httpAdminRoot: false, disableEditor: true, functionGlobalContext: { answer, counted },
  logging: { console: { level: 'warn', metrics: false, audit: false } },
  externalModules: { autoInstall: false },
};
