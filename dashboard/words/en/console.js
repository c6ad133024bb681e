// @ts-check
/** Words of the console, which sends test events. */

export const editor = 'Event';
export const publisher = 'Publisher';
export const eventType = 'Event type';
export const payload = 'Payload';
export const payloadAs = 'Payload as';
export const encodings = { text: 'Text', base64: 'Base64' };
export const isJson = 'Valid JSON';
export const isText = 'Sent as it is';
/** @param {string} reason */
export const notJson = (reason) => `Not JSON: ${reason}`;
export const notBase64 = 'Not base64';
/** @param {string} size */
export const bytes = (size) => `, ${size}`;
export const format = 'Format';
export const way = 'How to send it';
export const ways = { http: 'Over HTTP', mqtt: 'Over MQTT', dry: 'Dry run' };
export const send = 'Send';
export const run = 'Run';
export const sending = 'Sending…';
export const sendKeys = 'Ctrl Enter';
export const mqttText = 'This page does not send over MQTT. This command does:';
export const noMqtt = 'This node uses an external broker: put its name in the place of BROKER.';
export const dryText = 'Runs a handler over this payload, with the keys and a copy of the tables of the project. Nothing is kept and nothing is sent.';
export const withState = 'With the stored data of the project';
export const applet = 'Applet';
export const handler = 'Handler';
export const version = 'Version';
/** @param {number} n @param {boolean} current */
export const versionOption = (n, current) => `${n}${current ? ' (runs)' : ''}`;
export const asCurl = 'As curl';
export const curlLabel = 'curl command';
export const none = 'Nothing sent yet';
export const noneHint = 'The answer, the log lines and what the handlers wrote are shown here.';
export const noPublisher = 'No publisher to send as';
export const noPublisherHint = 'An event needs a publisher. This adds one with the key “console”.';
export const addPublisher = 'Add the publisher “console”';
export const publisherKey = 'console';
export const publisherName = 'Console of the dashboard';
export const noApplet = 'A dry run needs an applet.';
export const result = 'Result';
/** @param {string} took */
export const answeredIn = (took) => `answered in ${took}`;
/** @param {string} took */
export const ranIn = (took) => `ran in ${took}`;
export const accepted = 'succeeded';
export const failed = 'failed';
export const refused = 'refused';
export const nothingRan = 'no handler';
export const code = 'Code';
export const memory = 'Memory';
export const time = 'Time';
export const logs = 'Log';
export const noLogs = 'It logged nothing.';
export const writes = 'Key-value writes';
export const key = 'Key';
export const before = 'Before';
export const after = 'After';
export const absent = 'not there';
export const asBase64 = 'base64';
export const statements = 'SQL statements';
export const statement = 'Statement';
export const statementResult = 'Result';
export const kind = 'Kind';
export const target = 'Target';
export const body = 'Content';
export const noWrites = 'It wrote nothing.';
export const effects = 'Would send';
export const noEffects = 'It would send nothing.';
export const history = 'Last events';
/** @param {number} n */
export const historyText = (n) => `The last ${n} of this page; they are gone when the page is closed.`;
export const historyColumns = { time: 'Time', way: 'How', type: 'Type', payload: 'Payload', outcome: 'Outcome' };
export const open = (/** @type {string} */ time) => `Show the event of ${time}`;
export const loaded = 'The payload of the event is in the editor';
export const payloadGone = 'The payload of that event is no longer kept';
export const sample = '{\n  "temperature": 21.5,\n  "humidity": 40\n}';
