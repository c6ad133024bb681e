// @ts-check
/** One WebSocket for the page: figures, events, logs, health and dead letters as they come. */
import { signal } from '../vendor/preact.js';
import { ask, online } from './node_state.js';
import { expired, session } from './session.js';

const ADDRESS = '/srv-applet-mgr/v0/stream';
const SILENCE_MS = 40_000; // the node sends something every 15 s
const QUIET_MS = 3_000; // while the figures are followed it sends them every second
const AGAIN_MS = 5_000; // until a topic that has ended is followed again

/**
 * @typedef {object} Following
 * @property {number} id
 * @property {'series' | 'events' | 'logs' | 'health' | 'letters'} topic
 * @property {string} [project]
 * @property {Values} [filter]
 * @property {string} [after] the place up to which everything was received
 * @property {(news: any) => void} on
 */

/** Why the node gives this page no stream. */
export const refused = signal('');

/** @type {Map<number, Following>} */
const followings = new Map();
/** @type {WebSocket | null} */
let socket = null;
let ready = false;
let last = 0;
let pause = 250;
let timer = 0;
let silence = 0;
let quiet = 0;

/**
 * Follow a topic until the returned function is called. After a break the stream goes on where it
 * was, and the node says how many rows it left out.
 * @param {Omit<Following, 'id'>} what @returns {() => void}
 */
export function follow(what) {
  const one = { ...what, id: ++last };
  followings.set(one.id, one);
  if (ready) begin(one);
  else connect();
  return () => {
    followings.delete(one.id);
    tell({ drop: one.id });
    if (!followings.size) close();
  };
}

/** @param {Following} one */
function begin({ id, topic, project, filter = {}, after }) {
  const given = Object.fromEntries(Object.entries(filter).filter(([, value]) => value));
  tell({ follow: { id, topic, project, filter: given, after } });
}

/** @param {any} message */
function tell(message) {
  if (ready && socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify(message)); // it may close just now
}

function connect() {
  clearTimeout(timer);
  if (socket || document.hidden || !followings.size || !session.value || expired.value) return;
  const url = new URL(ADDRESS, location.origin);
  url.protocol = url.protocol.replace('http', 'ws');
  const opened = new WebSocket(url);
  socket = opened;
  opened.onopen = () => {
    ready = true;
    tell({ token: session.value?.token });
    for (const one of followings.values()) begin(one);
    heard();
  };
  opened.onmessage = ({ data }) => {
    heard();
    online.value = true;
    const news = JSON.parse(data);
    const one = followings.get(news.id);
    if (news.error) return ended(news.error, one);
    pause = 250;
    refused.value = '';
    if (!one) return;
    if (news.place != null) one.after = news.place;
    one.on(news);
  };
  opened.onclose = () => opened === socket && lost();
}

/** A topic has ended, or the stream itself. @param {any} error @param {Following} [one] */
function ended(error, one) {
  if (one) setTimeout(() => ready && followings.get(one.id) === one && begin(one), AGAIN_MS);
  else if (error.key === 'TooManyRequests') refused.value = error.desc || error.msg; // any other request tells of a token
}

function heard() {
  clearTimeout(silence);
  clearTimeout(quiet);
  quiet = window.setTimeout(probe, QUIET_MS);
  silence = window.setTimeout(() => socket && lost(), SILENCE_MS);
}

function close() {
  clearTimeout(silence);
  clearTimeout(quiet);
  const open = socket;
  socket = null;
  ready = false;
  open?.close();
}

/** Connect again, less often each time. A request tells whether node or token is the reason. */
function lost() {
  close();
  timer = window.setTimeout(connect, pause * (0.5 + Math.random() / 2));
  pause = Math.min(pause * 2, 8000);
  probe();
}

let probing = false;
/** Ask for the version: `ask` notices how it goes. */
async function probe() {
  if (probing) return;
  probing = true;
  try {
    await ask('/version');
  } catch {
    // `ask` has noticed that the node does not answer
  } finally {
    probing = false;
  }
}

// A hidden page has no stream; it goes on when it is seen.
document.addEventListener('visibilitychange', () => {
  if (document.hidden) close();
  else connect();
});
session.subscribe((now) => {
  if (!now) close();
  else connect();
});
