// @ts-check
/** Words of a project's triggers: cron jobs, monitors of chains, contract ABIs. */

export const cron = 'Cron jobs';
export const cronNone = 'No cron jobs';
export const cronNoneHint = 'A cron job sends an event at certain times, as if a device had sent it.';
export const cronColumns = { expression: 'When', type: 'Event type', next: 'Next', then: 'Next five times' };
export const addCron = 'Add cron job';
export const expression = 'Expression';
export const expressionHint = 'Minute, hour, day of month, month, day of week; or @hourly, @daily, @weekly, @every 10m. A prefix sets the time zone: CRON_TZ=Asia/Tokyo 0 9 * * *.';
export const eventType = 'Event type';
export const eventTypeHint = 'Empty: DEFAULT.';
export const cronAdded = 'Cron job added';
export const deleteCron = (/** @type {string} */ expression) => `Delete the cron job ${expression}?`;
export const deleteCronText = 'It sends no more events.';
export const cronDeleted = 'Cron job deleted';
export const neverAgain = 'never again';
export const comingTimes = 'Next times';
export const presets = { '* * * * *': 'every minute', '*/5 * * * *': 'every 5 minutes', '@hourly': 'every hour', '@daily': 'every day', '0 9 * * 1-5': 'weekdays at 9:00' };

export const monitors = 'Monitors of chains';
export const monitorsNone = 'No monitors';
export const monitorsNoneHint = 'A monitor turns logs of a contract, a transaction or a block height into events. Reorganised blocks are taken back.';
export const noChains = 'This node has no chain. An administrator names chains in the setting “chains”.';
export const chainsHelp = 'About chains';
export const monitorColumns = { kind: 'Kind', chain: 'Chain', what: 'What', type: 'Event type', state: 'State', at: 'Next block', lag: 'Lag', events: 'Events' };
export const kinds = { contract_log: 'Contract log', chain_tx: 'Transaction', chain_height: 'Block height' };
export const kindHints = { contract_log: 'Logs of a contract from a block on.', chain_tx: 'One transaction, when it is in a block.', chain_height: 'A block height, when the chain reaches it.' };
/** What the states of monitors mean. */
export const states = {
  ACTIVE: ['active', 'good'], PAUSED: ['paused', ''], FINISHED: ['finished', ''], FAILING: ['failing', 'bad'],
  UNREACHABLE: ['chain unreachable', 'bad'], NO_CHAIN: ['chain not configured', 'bad'], TAKING_BACK: ['taking back', 'warn'], TOLD: ['waits for finality', 'info'],
};
export const addMonitor = 'Add monitor';
export const kind = 'Kind';
export const chain = 'Chain';
export const contract = 'Address of the contract';
export const from = 'First block';
export const to = 'Last block';
export const toHint = 'Empty: no end.';
export const abi = 'ABI';
export const abiHint = 'With it, events carry the decoded arguments.';
export const noAbi = 'none';
export const event = 'Event of the contract';
export const eventHint = 'Its name in the ABI, or as Ping(uint256 indexed n). Empty: all logs, or those with the topics below.';
export const topic = (/** @type {number} */ n) => `Topic ${n}`;
export const topics = 'Topics';
export const topicsHint = '32 bytes in hexadecimal; empty matches all.';
export const hash = 'Hash of the transaction';
export const height = 'Block height';
export const startPaused = 'Begin paused';
export const monitorAdded = 'Monitor added';
export const pause = 'Pause';
export const start = 'Start';
export const pauseOf = (/** @type {string} */ what) => `Pause ${what}`;
export const startOf = (/** @type {string} */ what) => `Start ${what}`;
export const rewind = 'Rewind';
export const rewindOf = (/** @type {string} */ what) => `Rewind ${what}`;
export const rewindText = 'A monitor with the same filter begins at this block and takes the place of the old one. Logs that were sent before are sent again and run the handlers again.';
export const rewindTo = 'Begin again at block';
export const rewound = (/** @type {number} */ block) => `The monitor begins again at block ${block}`;
export const deleteMonitor = (/** @type {string} */ what) => `Delete the monitor of ${what}?`;
export const deleteOf = (/** @type {string} */ what) => `Delete ${what}`;
export const deleteMonitorText = 'It sends no more events. What it has sent stays.';
export const monitorDeleted = 'Monitor deleted';
export const block = (/** @type {string} */ n) => `block ${n}`;

export const abis = 'Contract ABIs';
export const abisNone = 'No ABIs';
export const abisNoneHint = 'With the ABI of a contract, monitors name its events and decode their arguments.';
export const abiColumns = { name: 'Name', events: 'Events', size: 'Size', added: 'Added' };
export const addAbi = 'Add ABI';
export const abiName = 'Name';
export const abiNameHint = 'Letters, digits, _, . and -.';
export const abiFile = 'JSON ABI, or compiler output with a field “abi”';
export const abiPaste = 'Paste it, or choose a file';
export const chooseFile = 'Choose a file';
export const notJson = 'This is not JSON.';
export const notAbi = 'This JSON is neither an ABI nor an object with a field “abi”.';
export const abiAdded = (/** @type {string} */ name) => `${name} added`;
export const deleteAbi = (/** @type {string} */ name) => `Delete the ABI ${name}?`;
export const deleteAbiText = 'Monitors that were created with it continue unchanged.';
export const abiDeleted = 'ABI deleted';
export const showAbi = (/** @type {string} */ name) => `Show the ABI ${name}`;
export const moreEvents = (/** @type {number} */ n) => `and ${n} more`;
