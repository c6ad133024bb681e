// @ts-check
/** Dead letters: events whose handler failed, in groups of one reason and handler. */
import { html, useState } from '../../vendor/preact.js';
import { post, remove, segment } from '../../core/api.js';
import { attempt, useLoad } from '../../core/load.js';
import { count, quoted, readable, size } from '../../core/format.js';
import { filter, query, to } from '../../core/route.js';
import { Ago, Badge, Card, Do, Empty, Mark, Show, Table, say, typedSlowly } from '../../parts/basics.js';
import { AsCommand, Code } from '../../parts/code.js';
import { Confirm, Dialog } from '../../parts/dialog.js';
import * as words from '../../words/en/letters.js';

const PAGE = 100;
const NONE = '-'; // in the address: no group is open

/** @typedef {Api.DeadLetterGroup & {version?: number}} LetterGroup with the only version that is meant */
/** @typedef {Api.DeadLetterRow} LetterRow */

/** What a group's letters have in common, as filters of the routes. @param {LetterGroup} group */
const filtersOf = ({ reason, appletID, handler, version }) => ({ reason, appletID, handler, ...(version && { version }) });
/** @param {LetterGroup} group */
const nameOf = (group) => [group.appletID, group.handler, group.reason].join('\n');

/**
 * Replay all letters of a filter, batch by batch, and say how it went.
 * @param {string} project @param {ReturnType<typeof filtersOf>} filters
 */
async function replayAll(project, filters) {
  let [replayed, failed, after] = [0, 0, ''];
  do {
    const done = /** @type {Api.ReplayedSelection} */ (await post(`/dead_letter/${segment(project)}/replay`, { ...filters, ...(after ? { after } : {}) }));
    replayed += done.replayed;
    failed += done.failed;
    after = done.next;
  } while (after);
  if (failed) throw new Error(words.failedAgain(failed, replayed));
  say(words.replayed(replayed));
}

/** Discard all letters of a filter, batch by batch. @param {string} project @param {ReturnType<typeof filtersOf>} filters */
async function discardAll(project, filters) {
  let [discarded, after] = [0, ''];
  do {
    const done = /** @type {Api.DiscardedSelection} */ (await remove(`/dead_letter/${segment(project)}`, { ...filters, after }));
    discarded += done.discarded;
    after = done.next;
  } while (after);
  say(words.discarded(discarded));
}

/** @param {{project: string, letter: LetterRow, onClose: () => void}} p */
function Letter({ project, letter, onClose }) {
  const loaded = useLoad((get) => get(`/dead_letter/${segment(project)}/${letter.letterID}`), [letter.letterID]);
  return html`<${Dialog} side title=${words.letter} onClose=${onClose}><p class="error">${letter.reason}</p>
    <dl class="pairs"><dt>${words.columns.event}</dt><dd><a href=${to('projects', project, 'events', letter.eventID)}>${letter.eventID}</a></dd><dt>${words.columns.type}</dt><dd>${letter.eventType}</dd>
      <dt>${words.handler}</dt><dd>${letter.appletName}.${letter.handler}${letter.appletVersion ? ` · ${words.version(letter.appletVersion)}` : ''}</dd><dt>${words.received}</dt><dd><${Ago} at=${letter.receivedAt} /></dd><dt>${words.columns.failed}</dt><dd><${Ago} at=${letter.failedAt} /></dd><dt>${words.attempts}</dt><dd>${letter.attempts}</dd></dl>
    <h3>${words.payload}</h3><${Show} of=${loaded}>${(/** @type {any} */ { payload }) => {
      const { kind, text } = readable(payload);
      return kind === 'empty' ? html`<p class="dim">${words.noPayload}</p>` : html`<${Code} label=${words.payload} text=${text} plain=${kind !== 'json'} />`;
    }}<//>
    <${AsCommand} text=${`fieldbrook dead-letter replay ${quoted(project)} ${letter.letterID}`} /><//>`;
}

/** The letters of a group, a page at a time. @param {{project: string, group: LetterGroup, picked: Set<string>, pick: (ids: string[], on: boolean) => void, show: (letter: LetterRow) => void, round: number}} p */
function Letters({ project, group, picked, pick, show, round }) {
  const [pages, more] = useState(/** @type {string[]} */ (['']));
  const loaded = useLoad(async (get) => {
    const lists = [];
    for (const before of pages) {
      const page = await get(`/dead_letter/${segment(project)}`, { ...filtersOf(group), before, limit: PAGE });
      lists.push(.../** @type {Api.DeadLetterList} */ (page).data);
    }
    return lists;
  }, [nameOf(group), group.version, pages, round]);
  return html`<${Show} of=${loaded}>${(/** @type {LetterRow[]} */ list) => html`<${Table} label=${words.ofGroup(group.reason)} columns=${[[words.select, 'hidden'], words.columns.failed, words.columns.event, words.columns.type, [words.columns.version, 'num'], [words.columns.attempts, 'num'], [words.columns.size, 'num']]}>
    ${list.map((one) => html`<tr key=${one.letterID}><td><label class="check"><input type="checkbox" aria-label=${words.selectOne(one.eventID)} checked=${picked.has(one.letterID)} onChange=${(/** @type {any} */ e) => pick([one.letterID], e.target.checked)} /></label></td>
      <td class="dim"><${Ago} at=${one.failedAt} /></td><td><button type="button" class="link mono" onClick=${() => show(one)}>${one.eventID}</button></td><td>${one.eventType}</td><td class="num">${one.appletVersion}</td><td class="num">${one.attempts}</td><td class="num dim">${size(one.size)}</td></tr>`)}<//>
    ${list.length === pages.length * PAGE && html`<div class="pad"><button type="button" onClick=${() => more([...pages, list[list.length - 1].letterID])}>${words.more}</button></div>`}`}<//>`;
}

/** @param {{project: string, group: LetterGroup, open: boolean, reload: () => void, children?: any, discard: () => void}} p */
function Group({ project, group, open, reload, children, discard }) {
  const [busy, set] = useState(false);
  const replay = async () => {
    set(true);
    await attempt(() => replayAll(project, filtersOf(group)));
    set(false);
    reload();
  };
  return html`<section class="group"><header class="bar"><${Mark} icon=${open ? 'down' : 'right'} kind="square" label=${words.ofGroup(group.reason)} aria-expanded=${open} onClick=${() => filter({ group: open ? NONE : nameOf(group) })} />
      <${Badge} kind="bad">${count(group.count)}<//><div class="reason"><strong>${group.appletName}.${group.handler}</strong><p>${group.reason}</p></div>
      <span class="grow"></span><span class="dim"><${Ago} at=${group.newest} /></span><${Do} icon="back" disabled=${busy} onClick=${replay}>${words.replayAll}<//><button type="button" class="danger" onClick=${discard}>${words.discardAll}</button></header>${open && children}</section>`;
}

/** What is done with the letters that were selected. @param {{project: string, picked: Set<string>, done: () => void}} p */
function Selected({ project, picked, done }) {
  const ids = [...picked];
  const replay = () => attempt(async () => {
    let failed = 0;
    for (let at = 0; at < ids.length; at += PAGE) {
      const { results } = /** @type {Api.ReplayedLetters} */ (await post(`/dead_letter/${segment(project)}/replay`, { letterIDs: ids.slice(at, at + PAGE) }));
      failed += results.filter((result) => result.code < 0).length;
    }
    if (failed) throw new Error(words.failedAgain(failed, ids.length));
    say(words.replayed(ids.length));
  }).then(done);
  const discard = () => attempt(async () => {
    for (let at = 0; at < ids.length; at += PAGE) await remove(`/dead_letter/${segment(project)}`, { letterID: ids.slice(at, at + PAGE) });
    say(words.discarded(ids.length));
  }).then(done);
  return html`<div class="bar selected"><strong>${words.selected(ids.length)}</strong><span class="grow"></span><${Do} icon="back" class="primary" onClick=${replay}>${words.replay}<//><button type="button" class="danger" onClick=${discard}>${words.discard}</button></div>`;
}

/** @param {Project} p */
export function Page({ name, again }) {
  const version = Number(query.value.version) || undefined;
  const groups = useLoad((get) => get(`/dead_letter/${segment(name)}`, { groupBy: 'reason', version }), [name, version], 10_000);
  const [picked, set] = useState(/** @type {Set<string>} */ (new Set()));
  const [shown, show] = useState(/** @type {LetterRow | null} */ (null));
  const [discarding, discard] = useState(/** @type {LetterGroup | null} */ (null));
  const [round, next] = useState(0);
  const pick = (/** @type {string[]} */ ids, /** @type {boolean} */ on) => {
    const chosen = new Set(picked);
    for (const id of ids) on ? chosen.add(id) : chosen.delete(id);
    set(chosen);
  };
  const reload = () => {
    set(new Set());
    next(round + 1);
    groups.again();
    again();
  };
  const known = /** @type {Api.DeadLetterGroups | undefined} */ (groups.data);
  const list = (known?.groups ?? []).map((group) => ({ ...group, version }));
  const ofVersion = (/** @type {string} */ wanted) => {
    set(new Set()); // not those that are no longer shown
    filter({ version: wanted });
  };
  return html`<${Card} title=${known ? words.kept(count(list.reduce((sum, group) => sum + group.count, 0))) : '…'} controls=${html`<span class="hint">${words.hint}</span><label class="line">${words.failedIn}<input size="4" inputmode="numeric" defaultValue=${version} onInput=${typedSlowly(ofVersion)} /></label>`}>${picked.size > 0 && html`<${Selected} project=${name} picked=${picked} done=${reload} />`}
      <${Show} of=${groups}>${() => (list.length ? list.map((group) => html`<${Group} key=${nameOf(group)} project=${name} group=${group} open=${query.value.group ? query.value.group === nameOf(group) : list.length === 1} reload=${reload} discard=${() => discard(group)}><${Letters} project=${name} group=${group} picked=${picked} pick=${pick} show=${show} round=${round} /><//>`) : html`<${Empty} title=${words.none} icon="heart">${!version && words.noneHint}<//>`)}<//><//>
    ${shown && html`<${Letter} key=${shown.letterID} project=${name} letter=${shown} onClose=${() => show(null)} />`}
    ${discarding && html`<${Confirm} title=${words.discardAll} text=${words.discardText(count(discarding.count))} submit=${words.discardAll} onClose=${() => discard(null)} work=${async () => { await discardAll(name, filtersOf(discarding)); reload(); }} />`}`;
}
