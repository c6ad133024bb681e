// @ts-check
/** Words of a project's settings. */

export const general = 'Project';
export const id = 'Project id';
export const owner = 'Account id';
export const created = 'Created';
export const description = 'Description';
export const saved = 'Saved';
export const access = 'Events without a token';
export const isPublic = 'accepted';
export const isPrivate = 'refused';
export const makePublic = 'Accept events without a token';
export const makePublicText = 'Anybody who reaches the node can send events to this project. They come from the publisher “anonymous”.';
export const makePrivate = 'Refuse events without a token';
export const makePrivateText = 'This deletes the publisher “anonymous”. Events of other publishers are not affected.';
export const nowPublic = 'Events without a token are accepted';
export const nowPrivate = 'Events without a token are refused';
export const anonymousKey = 'anonymous';
export const worker = 'Worker';
export const isDedicated = 'its own';
export const isShared = 'shared';
export const makeDedicated = 'Use a worker of its own';
export const makeDedicatedText = 'The project gets a process for itself: no other project can slow it down or stop it. That takes more memory of the node, so an account may have only some (quota “dedicated”). Events that arrive during the move wait.';
export const makeShared = 'Share a worker';
export const makeSharedText = 'The project runs in one process with others. Events that arrive during the move wait.';
export const nowDedicated = 'The project has a worker of its own';
export const nowShared = 'The project shares a worker';

export const variables = 'Environment variables';
export const variablesText = 'Handlers read them with ws_get_env. Events that arrive after saving see the new values.';
export const variableName = 'Name';
export const variableValue = 'Value';
export const nameOf = (/** @type {number} */ n) => `Name of variable ${n}`;
export const valueOf = (/** @type {number} */ n) => `Value of variable ${n}`;
export const removeVariable = (/** @type {number} */ n) => `Leave out variable ${n}`;
export const addVariable = 'Add variable';
export const noVariables = 'No variables.';
export const saveVariables = 'Save variables';
export const variablesSaved = 'Variables saved';

export const operator = 'Operator';
export const operatorText = 'The key that signs this project’s transactions. Its address pays for them.';
export const address = 'Address';
export const useOperator = 'Sign with';
export const operatorChanged = 'Operator changed';
export const operatorOption = (/** @type {string} */ name, /** @type {string} */ address) => `${name} – ${address.slice(0, 8)}…${address.slice(-4)}`;
export const spending = 'Spending limit';
export const noLimit = 'none';
export const perDay = (/** @type {string} */ amount) => `${amount} per day`;
export const noChains = 'This node has no chain, so the project sends no transactions.';

export const exportTitle = 'Export';
export const exportText = 'A file with applets, strategies, publishers, triggers and settings. “Import” on the page of all projects makes a project of it, on this node or on another.';
export const withData = 'With the data that handlers stored';
export const withTokens = 'With the tokens of publishers: the file is a secret then';
export const exportNow = 'Export project';
export const exported = 'The project was exported';

export const danger = 'Delete this project';
export const dangerText = 'Deletes the project with its applets, publishers, triggers, history and all stored data. This cannot be undone.';
export const deleteProject = 'Delete project';
export const deleteTitle = (/** @type {string} */ name) => `Delete ${name}?`;
export const deleted = (/** @type {string} */ name) => `${name} deleted`;
