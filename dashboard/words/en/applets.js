// @ts-check
/** Words of a project's applets. */

export const drop = 'Drop a WebAssembly module here';
export const dropHint = '.wasm or .wat. It is checked before anything is stored. No event is lost while a new version takes over.';
export const choose = 'Choose a file';
export const example = 'Use the counter example';
export const exampleName = 'counter.wat';
export const none = 'No applets yet';
export const noneHint = 'An applet is a WebAssembly module. Its handlers run for the event types that you choose.';
export const states = { STARTED: 'started', STOPPED: 'stopped', CREATED: 'created', REMOVED: 'no instance' };
/** @param {number} n */
export const version = (n) => `version ${n}`;
export const isolations = { EVENT: 'an instance per event', BATCH: 'an instance per batch', INSTANCE: 'a kept instance' };
export const isolationHints = {
  EVENT: 'The safest: a handler never sees memory of another event.',
  BATCH: 'Faster: events that arrive together share memory.',
  INSTANCE: 'For applets that keep state in memory for a number of events.',
};
export const start = 'Start';
export const stop = 'Stop';
export const newVersion = 'New version';
/** @param {string} name */
export const newVersionOf = (name) => `New version of ${name}`;
/** @param {string} name */
export const startOf = (name) => `Start ${name}`;
/** @param {string} name */
export const stopOf = (name) => `Stop ${name}`;
/** @param {string} name */
export const editOf = (name) => `Edit ${name}`;
/** @param {string} name */
export const deleteOf = (name) => `Delete ${name}`;
/** @param {string} name */
export const started = (name) => `${name} handles events`;
/** @param {string} name */
export const stopped = (name) => `${name} is stopped: its events are answered with code -1`;
/** @param {string} name */
export const deleteTitle = (name) => `Delete ${name}?`;
export const deleteText = 'Its instance, strategies and versions are deleted. Events of its types become dead letters or are not handled at all. The pairs that it stored stay.';
export const deleted = (/** @type {string} */ name) => `${name} deleted`;

export const strategies = 'Strategies';
export const strategyColumns = { type: 'Event type', handler: 'Handler', state: 'State' };
export const noStrategies = 'No strategy: this applet handles no events.';
export const addStrategy = 'Add strategy';
export const editStrategy = (/** @type {string} */ type) => `Edit the strategy of ${type}`;
export const deleteStrategy = (/** @type {string} */ type) => `Delete the strategy of ${type}?`;
export const deleteStrategyText = 'Events of this type do not reach this handler any more.';
export const eventType = 'Event type';
export const eventTypeHint = 'DEFAULT gets the events of all types that no strategy names.';
export const handler = 'Handler';
export const handlerHint = 'A function that the module exports.';
export const dead = 'dead';
export const works = 'works';
export const strategySaved = 'Strategy saved';
export const strategyDeleted = 'Strategy deleted';
export const collect = 'Collect metrics of this strategy';

export const versions = 'Versions';
export const versionColumns = { version: 'Version', module: 'Module', digest: 'SHA-256', size: 'Size', handlers: 'Handlers', author: 'Author', time: 'Deployed' };
export const current = 'runs';
export const rollBack = 'Roll back';
/** @param {number} n */
export const rollBackTo = (n) => `Roll back to version ${n}`;
/** @param {string} name @param {number} n */
export const rollBackTitle = (name, n) => `Roll ${name} back to version ${n}?`;
export const rollBackText = 'It takes over between two batches of events: no event is lost and none fails. Strategies and stored pairs stay as they are.';
/** @param {string} name @param {number} n */
export const rolledBack = (name, n) => `${name} runs version ${n} again`;
/** @param {number} n */
export const download = (n) => `Download the module of version ${n}`;

export const deployTitle = (/** @type {string} */ file) => `Deploy ${file}`;
export const deploy = 'Deploy';
export const deployed = (/** @type {string} */ name) => `${name} deployed`;
export const target = 'Deploy as';
export const asNew = 'a new applet';
/** @param {string} name @param {number} n */
export const asVersion = (name, n) => `version ${n} of ${name}`;
export const name = 'Name';
export const check = 'Check';
export const passed = 'This node can run it';
export const refused = 'This node cannot run it';
export const imports = 'Imports';
export const nothing = 'none';
export const furtherImports = (/** @type {number} */ n) => `and ${n} more`;
export const handlers = 'Handlers';
export const noHandlers = 'It exports no handler: a function that takes an i32 and returns an i32.';
export const size = 'Size';
export const digest = 'SHA-256';
export const addRow = 'Add event type';
export const removeRow = (/** @type {string} */ type) => `Leave out ${type}`;
export const kept = 'The strategies stay as they are:';
export const missing = (/** @type {string} */ which) => `${which} is missing in this module`;
export const isolation = 'How long an instance lives';
export const reuse = 'Events that share an instance';
export const prefix = 'Prefix of its keys';
export const prefixHint = 'Applets with the same prefix share their key-value pairs. Empty: its own.';
export const saved = (/** @type {string} */ which) => `${which} saved`;
