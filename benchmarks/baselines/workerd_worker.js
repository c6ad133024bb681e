// The work of an event as a Worker: JSON, token by table, base64, the sum in WebAssembly.
import module from './work.wasm';

const { memory, sum, spin } = new WebAssembly.Instance(module, {}).exports;
const bytes = new Uint8Array(memory.buffer);
const headers = { 'Content-Type': 'application/json' };
const kept = new Map([['count', 0]]);
const good = { instanceID: 'workerd', code: 0, errMsg: '' };
let tokens;

// Returns the result, or undefined when the token is not the publisher's.
function work(event) {
  const { pub_id: publisher, token, event_type: kind } = event.header;
  if (!token || tokens.get(publisher) !== token) return undefined;
  const payload = Buffer.from(event.payload, 'base64');
  bytes.set(payload, 1024);
  if (kind === 'SPIN') return spin(1024, payload.length);
  const result = sum(1024, payload.length);
  if (kind === 'KV') kept.set('sum', result);
  if (kind === 'TALLY') kept.set('count', kept.get('count') + 1);
  return result;
}

function answer(message) {
  if (!message.events) {
    const result = work(message);
    return result === undefined ? undefined : { results: [good], result };
  }
  const results = message.events.map(work);
  return results.includes(undefined)
    ? undefined : results.map((result) => ({ wasmResults: [good], result }));
}

export default {
  async fetch(request, env) {
    tokens ??= new Map(Object.entries(JSON.parse(env.TOKENS)));
    const body = answer(JSON.parse(await request.text()));
    if (body === undefined) return new Response('{"error":"token"}', { status: 401, headers });
    return new Response(JSON.stringify(body), { status: 201, headers });
  },
};
