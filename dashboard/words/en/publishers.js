// @ts-check
/** Words of a project's publishers. */

export const title = 'Publishers';
/** @param {number} n */
export const number = (n) => (n === 1 ? '1 publisher' : `${n} publishers`);
/** @param {number} shown @param {number} total */
export const shownOf = (shown, total) => `${shown} of ${total} shown`;
export const none = 'No publishers yet';
export const noneHint = 'A publisher is a device, or a program, that sends events to this project. Its token says who it is.';
export const noneFound = 'No publisher matches';
export const find = 'Filter by key or name';
export const add = 'Add publisher';
export const columns = { key: 'Key', name: 'Name', types: 'Event types', seen: 'Last seen', events: 'Events', expires: 'Token expires' };
export const countedHint = 'Counted since the node started';
export const everyType = 'all';
export const never = 'never';
export const connect = 'Connect';
export const newToken = 'New token';
/** @param {string} key */
export const connectTitle = (key) => `Connect ${key}`;
export const connectText = 'Everything below holds the token of this publisher: whoever has it can send events in its name.';
export const key = 'Key';
export const keyHint = 'What the device calls itself, such as a serial number. It cannot be used twice in a project.';
export const name = 'Name';
export const nameHint = 'For people. Empty: the key.';
export const types = 'Event types it may send';
export const typesHint = 'One per line. Empty: all types.';
export const days = 'Days until the token expires';
export const daysHint = 'Empty: it does not expire.';
export const editTitle = (/** @type {string} */ which) => `Edit ${which}`;
export const added = (/** @type {string} */ which) => `${which} can send events now`;
export const changed = (/** @type {string} */ which) => `${which} changed`;
export const rotateTitle = (/** @type {string} */ which) => `New token for ${which}`;
export const rotateText = 'The old token stops working at once. The device needs the new one before it can send again.';
export const rotated = 'The old token has stopped working';
export const deleteTitle = (/** @type {string} */ which) => `Delete ${which}?`;
export const deleteText = 'Its token stops working at once. Events that it has sent stay in the history.';
export const anonymous = 'Public project: events without a token come from the publisher “anonymous”.';

export const eventType = 'Event type';
export const ways = { http: 'HTTP', mqtt: 'MQTT', python: 'Python', c: 'C' };
export const howTo = 'Ways to connect';
export const whatToDo = {
  http: 'Answered when all handlers have run and their effects are on disk.',
  mqtt: 'With QoS 1 the node acknowledges the event when its effects are on disk.',
  python: 'Needs Python 3 alone.',
  c: 'Needs libcurl: cc -o send send.c -lcurl',
};
export const noMqtt = 'This node uses an external MQTT broker. Publish to the topic below at that broker.';
export const snippet = (/** @type {string} */ way) => `Example for ${way}`;
export const token = 'Token';
export const copyToken = 'Copy the token';
export const topic = 'Topic';
export const address = 'Address';
export const code = 'For a phone or a provisioning tool';
export const codeText = 'JSON with the address, the project, the publisher and its token.';
export const codeLabel = 'QR code with address, project, publisher and token';
export const showCode = 'Show the QR code';
