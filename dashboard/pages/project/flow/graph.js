// @ts-check
/**
 * The flow of a project as nodes and lines: sources, event types, applets with their handlers,
 * effects. Nothing here draws.
 */
import * as words from '../../../words/en/flow.js';

const LIMITS = { sources: 9, types: 10, handlers: 12, applets: 6 };
const SENT = new Set(['mqtt', 'api', 'chain']); // effects that are counted
const DENSE = 4; // quiet sources are joined to all types as long as there are no more types

/**
 * @typedef {object} Row a handler of an applet, or the applets that are grouped
 * @property {string} id
 * @property {string} text
 * @property {number} rate events per second
 * @property {number} recent events of the last minutes
 * @property {number} failed
 * @property {boolean} [dead] the module has no such handler
 *
 * @typedef {object} Node
 * @property {string} id
 * @property {string} icon
 * @property {string} text
 * @property {string} hint
 * @property {string[]} to segments of its page behind the project
 * @property {Record<string, string>} [mark] query of its page
 * @property {number} rate @property {number} recent @property {number} failed
 * @property {boolean} [ghost] there is none yet: what to do first
 * @property {boolean} [loose] nothing handles it
 * @property {Row[]} [rows]
 *
 * @typedef {{from: string, to: string, rate: number, recent: number, failed: number, shared?: boolean}} Line `from` and `to` are ids of nodes or rows; shared: its own figures are not known
 * @typedef {{columns: Node[][], lines: Line[], events: number, failed: number}} Graph
 *
 * @typedef {Api.StrategyReply} Strategy
 * @typedef {Partial<Api.ContractLogReply & Api.ChainTxReply & Api.ChainHeightReply> & {kind: string, eventType: string, chainID: number}} Monitor
 * @typedef {object} Data what the graph is made of
 * @property {Api.PublisherReply[]} publishers
 * @property {Api.CronJobReply[]} crons
 * @property {Monitor[]} monitors
 * @property {Api.AppletReply[]} applets
 * @property {number} letters
 * @property {Api.FlowReply} flow
 */

const sum = (/** @type {any[]} */ list, /** @type {string} */ name) => list.reduce((all, one) => all + (one[name] ?? 0), 0);
const figures = (/** @type {any[]} */ list) => ({ rate: sum(list, 'rate'), recent: sum(list, 'recent'), failed: sum(list, 'failed') });
const busiest = (/** @type {any} */ a, /** @type {any} */ b) => Number(b.failed > 0) - Number(a.failed > 0) || b.recent - a.recent || a.text.localeCompare(b.text);

/** The first of a list in its order; the rest becomes one. @param {any[]} list @param {number} limit @param {(rest: any[]) => any} join */
function grouped(list, limit, join) {
  if (list.length <= limit) return { shown: list, groupOf: new Map() };
  const shown = list.slice(0, limit - 1);
  const rest = list.slice(limit - 1);
  const group = { ...join(rest), ...figures(rest), members: rest };
  return { shown: [...shown, group], groupOf: new Map(rest.map((one) => [one.id, group.id])) };
}

/** What sends events: publishers, cron jobs, monitors, and whatever else has sent some. @param {Data} data */
function sourcesOf({ publishers, crons, monitors, flow }) {
  const seen = flow.sources;
  const of = (/** @type {(one: Api.SourceFlow) => boolean} */ test) => {
    const own = seen.filter(test);
    return { ...figures(own.map((one) => ({ rate: one.perSecond, recent: one.events }))), own };
  };
  const known = new Set(publishers.map((one) => one.publisherID));
  const fromPublishers = publishers.map((one) => {
    const found = of(({ publisherID }) => publisherID === one.publisherID);
    const last = found.own.reduce((at, s) => (s.lastAt && s.lastAt > at ? s.lastAt : at), '');
    return { id: `p${one.publisherID}`, icon: 'send', text: one.name || one.key, hint: last ? words.lastSeen(last) : words.noEvents, to: ['publishers'], types: [], any: true, brief: true, ...found };
  });
  const fromCrons = crons.map((one) => ({ id: `c${one.cronJobID}`, icon: 'clock', text: one.cronExpressions, hint: words.cron, to: ['triggers'], types: [one.eventType], ...of(({ source, eventType }) => source === 'cron' && eventType === one.eventType) }));
  const fromMonitors = monitors.map((one) => ({ id: `m${one.contractlogID ?? one.chaintxID ?? one.chainHeightID}`, icon: 'chain', text: one.contractAddress ?? one.txAddress ?? one.height ?? words.monitors[one.kind], hint: words.monitor(one.kind, one.chainID), to: ['triggers'], types: [one.eventType], ...of(({ source, eventType }) => source === 'chain' && eventType === one.eventType) }));
  const explained = (/** @type {Api.SourceFlow} */ s) => known.has(s.publisherID) || [...fromCrons, ...fromMonitors].some(({ own }) => own.includes(s));
  const others = Object.groupBy(seen.filter((s) => !explained(s)), (s) => s.source || 'http');
  const fromOthers = Object.keys(others).map((source) => ({ id: `s${source}`, icon: 'spark', text: words.otherSources[source] ?? source, hint: source === 'api' ? words.api : source === 'http' ? words.command : words.removed, to: ['events'], types: [], ...of((s) => !explained(s) && (s.source || 'http') === source) }));
  return [...fromPublishers, ...fromCrons, ...fromMonitors, ...fromOthers].sort(busiest);
}

/** Event types: those of strategies and sources, and those that came in. @param {Data} data @param {any[]} sources @param {Strategy[]} strategies */
function typesOf({ flow }, sources, strategies) {
  const names = new Set([...strategies.map(({ eventType }) => eventType), ...sources.flatMap(({ types }) => types), ...flow.types.map((one) => one.eventType)]);
  return [...names].map((name) => {
    const found = flow.types.find((one) => one.eventType === name);
    const own = strategies.filter(({ eventType }) => eventType === name);
    return { id: `t${name}`, icon: 'tag', text: name, hint: own.length ? words.handlers(own.length) : words.unhandled, to: ['events'], mark: { type: name }, loose: !own.length, rate: found?.perSecond ?? 0, recent: found?.events ?? 0, failed: found?.failed ?? 0 };
  }).sort(busiest);
}

/** Applets with a row for each handler. @param {Data} data @param {Strategy[]} strategies @param {any[]} types */
function appletsOf({ applets, flow }, strategies, types) {
  const ofType = new Map(types.map((one) => [one.text, one]));
  return applets.map((applet) => {
    const own = strategies.filter(({ appletID }) => appletID === applet.appletID);
    const rows = Object.values(Object.groupBy(own, ({ handler }) => handler)).map((group = []) => {
      const into = group.map((one) => ofType.get(one.eventType)).filter(Boolean);
      const ids = new Set(group.map((one) => one.strategyID));
      const failed = sum(flow.handlers.filter((one) => ids.has(one.strategyID)), 'failed');
      return { id: `h${applet.appletID}.${group[0].handler}`, text: group[0].handler, dead: group.some((one) => one.dead), ...figures(into), failed };
    });
    const state = applet.instance?.state ?? 'none';
    return { id: `a${applet.appletID}`, icon: 'box', text: applet.name, hint: words.version(applet.version, state), to: ['applets'], stopped: state !== 'STARTED', rows: rows.sort(busiest), ...figures(rows) };
  }).sort(busiest);
}

/** What handlers cause, and their failures. @param {Data} data @param {any[]} applets */
function effectsOf({ flow, letters }, applets) {
  const kinds = new Set(flow.applets.flatMap((one) => one.effects));
  const nodes = Object.entries(words.effects).filter(([kind]) => kinds.has(kind)).map(([kind, [text, hint]]) => {
    const sent = flow.sends.find((one) => one.kind === kind);
    const page = { kv: 'data', sql: 'data', chain: 'transactions', log: 'logs' }[kind] ?? 'events';
    const told = sent && (sent.delivered || sent.waiting || sent.refused) ? (sent.refused ? words.refusedSends(sent.refused) : words.sent(sent.delivered, sent.waiting)) : hint;
    return { id: `e${kind}`, icon: { kv: 'key', sql: 'list', mqtt: 'send', chain: 'chain', api: 'leave', metrics: 'pulse', log: 'terminal' }[kind], text, hint: told, to: [page], rate: 0, recent: 0, failed: sent?.refused ?? 0 };
  });
  const failed = sum(applets, 'failed');
  if (letters || failed) nodes.push({ id: 'eletters', icon: 'ban', text: words.letters, hint: words.kept(letters), to: ['letters'], rate: 0, recent: failed, failed });
  return nodes;
}

/** What an applet has sent: all there is, if no other applet has this effect. @param {any} applet @param {string} kind @param {Api.FlowReply} flow */
function sentBy(applet, kind, flow) {
  const { delivered = 0, waiting = 0, refused = 0 } = flow.sends.find((one) => one.kind === kind) ?? {};
  const recent = delivered + waiting + refused;
  if (flow.applets.filter(({ effects }) => effects.includes(kind)).length > 1) return { recent: recent && applet.recent, shared: true };
  return { rate: (recent * 1000) / (Date.parse(flow.end) - Date.parse(flow.begin)), recent };
}

/** Nodes of a column in the order of what they are joined to, which keeps lines from crossing. @param {any[]} list @param {(one: any) => number[]} joined */
function untangled(list, joined) {
  const place = new Map(list.map((one, i) => {
    const at = joined(one).filter((n) => n >= 0);
    return [one, at.length ? at.reduce((a, b) => a + b, 0) / at.length : list.length + i];
  }));
  const isRest = (/** @type {{id: string}} */ one) => Number(one.id.endsWith('+')); // what is grouped comes last
  return list.toSorted((a, b) => isRest(a) - isRest(b) || (place.get(a) ?? 0) - (place.get(b) ?? 0));
}

/**
 * The graph of a project.
 * @param {Data} data @returns {Graph}
 */
export function graphOf(data) {
  const strategies = data.applets.flatMap((applet) => applet.strategies ?? []);
  const allSources = sourcesOf(data);
  const allTypes = typesOf(data, allSources, strategies);
  const allApplets = appletsOf(data, strategies, allTypes);
  const effects = effectsOf(data, allApplets);

  const { shown: someTypes, groupOf: typeGroup } = grouped(allTypes, LIMITS.types, (rest) => ({ id: 't+', icon: 'tag', text: words.moreTypes(rest.length), hint: '', to: ['events'], loose: rest.every(({ loose }) => loose) }));
  const { shown: someSources, groupOf: sourceGroup } = grouped(allSources, LIMITS.sources, (rest) => ({ id: 's+', icon: 'send', text: words.morePublishers(rest.length), hint: '', to: ['publishers'] }));
  const { applets, rowOf, nodeOf } = shownApplets(allApplets);

  const lines = /** @type {Map<string, Line>} */ (new Map());
  const join = (/** @type {string} */ from, /** @type {string} */ to, /** @type {any} */ { rate = 0, recent = 0, failed = 0, shared = false }) => {
    const key = `${from}>${to}`;
    const old = lines.get(key);
    lines.set(key, { from, to, rate: rate + (old?.rate ?? 0), recent: recent + (old?.recent ?? 0), failed: failed + (old?.failed ?? 0), shared });
  };
  const type = (/** @type {string} */ name) => typeGroup.get(`t${name}`) ?? `t${name}`;
  for (const source of allSources) {
    const from = sourceGroup.get(source.id) ?? source.id;
    for (const one of source.own) join(from, type(one.eventType), { rate: one.perSecond, recent: one.events });
    for (const name of source.types) join(from, type(name), {});
    if ('any' in source && !source.own.length && allTypes.length <= DENSE) for (const one of someTypes) join(from, one.id, {});
  }
  const failures = new Map(data.flow.handlers.map((one) => [one.strategyID, one.failed]));
  for (const strategy of strategies) {
    const found = allTypes.find(({ text }) => text === strategy.eventType);
    join(type(strategy.eventType), rowOf(strategy), { ...found, failed: failures.get(strategy.strategyID) ?? 0 });
  }
  for (const applet of allApplets) {
    const known = data.flow.applets.find((one) => `a${one.appletID}` === applet.id);
    for (const kind of known?.effects ?? []) join(nodeOf(applet), `e${kind}`, SENT.has(kind) ? sentBy(applet, kind, data.flow) : { rate: applet.rate, recent: applet.recent });
    if (applet.failed) join(nodeOf(applet), 'eletters', { recent: applet.failed, failed: applet.failed });
  }
  const all = [...lines.values()];
  const rowsAt = new Map(applets.flatMap(({ rows }) => rows).map((row, /** @type {number} */ i) => [row.id, i]));
  const types = untangled(someTypes, (one) => all.filter(({ from }) => from === one.id).map(({ to }) => rowsAt.get(to) ?? -1));
  const typeAt = new Map(types.map((one, i) => [one.id, i]));
  const sources = untangled(someSources, (one) => all.filter(({ from }) => from === one.id).map(({ to }) => typeAt.get(to) ?? -1));
  if (!types.length) all.push(...[['gs', 'gt'], ['gt', 'ga']].map(([from, end]) => ({ from, to: end, rate: 0, recent: 0, failed: 0 })));
  return { columns: withGhosts([sources, types, applets, effects], data), lines: all, events: sum(allTypes, 'recent'), failed: sum(allTypes, 'failed') };
}

/** The applets that are shown, and where the others' handlers went. @param {any[]} all */
function shownApplets(all) {
  const { shown, groupOf } = grouped(all, LIMITS.applets, (rest) => ({ id: 'a+', icon: 'box', text: words.moreApplets(rest.length), hint: '', to: ['applets'], rows: [{ id: 'h+', text: words.handlers(sum(rest.map(({ rows }) => ({ n: rows.length })), 'n')), ...figures(rest) }] }));
  const share = Math.max(2, Math.floor(LIMITS.handlers / Math.max(1, shown.length)));
  const group = new Map();
  const applets = shown.map((applet) => {
    const { shown: rows, groupOf: hidden } = grouped(applet.rows, shown.length === 1 ? LIMITS.handlers : share, (rest) => ({ id: `${applet.id}+`, text: words.moreHandlers(rest.length) }));
    for (const [id, into] of hidden) group.set(id, into);
    return { ...applet, rows };
  });
  const rowOf = (/** @type {any} */ { appletID, handler }) => (groupOf.has(`a${appletID}`) ? 'h+' : (group.get(`h${appletID}.${handler}`) ?? `h${appletID}.${handler}`));
  return { applets, rowOf, nodeOf: (/** @type {{id: string}} */ applet) => groupOf.get(applet.id) ?? applet.id };
}

/** Empty columns say what to do first. @param {any[][]} columns @param {Data} data @returns {Node[][]} */
function withGhosts([sources, types, applets, effects], data) {
  const ghost = (/** @type {string} */ id, /** @type {string[]} */ [text, hint], /** @type {string} */ page) => [{ id, icon: 'plus', text, hint, to: [page], ghost: true, rate: 0, recent: 0, failed: 0 }];
  return [
    sources.length ? sources : ghost('gs', words.addPublisher, 'publishers'),
    types.length ? types : ghost('gt', words.addType, 'applets'),
    data.applets.length ? applets : ghost('ga', words.addApplet, 'applets'),
    effects,
  ];
}
