// @ts-check
/** Words of the page of a project's data. */

export const pairs = 'Key-value pairs';
export const pair = 'Key and value';
export const applet = 'Applet';
export const prefix = 'Prefix of the key';
export const key = 'Key';
export const value = 'Value';
export const valueHint = 'Stored as UTF-8 text. Handlers that keep other bytes here would read this text.';
export const kind = 'Kind';
export const size = 'Size';
export const kinds = { json: 'JSON', text: 'text', bytes: 'bytes', number: 'number', empty: 'empty' };
export const noPairs = 'No keys yet';
export const noPairsFound = 'No key has this prefix';
export const noPairsHint = 'Handlers write them with ws_set_db.';
export const add = 'Add a key';
export const change = 'Change';
export const save = 'Save';
export const saved = 'Saved';
export const remove = 'Delete';
/** @param {string} key */
export const removeText = (key) => `Delete the key ${key}? Handlers will no longer find it.`;
export const more = 'Show more';

export const tables = 'Tables';
export const noTables = 'No tables';
export const noTablesHint = 'Tables are declared in the schema of the project.';
export const editSchema = 'Edit the schema';
export const schema = 'Schema of the project';
export const schemaHint = 'As PROJECT_DATABASE has it. Columns and tables can be added; what exists is kept.';
export const schemaSaved = 'Schema saved';
export const sortBy = (/** @type {string} */ column) => `Sort by ${column}`;
export const noRows = 'No rows';
export const nothing = 'NULL';
export const query = 'Query';
export const queryHint = 'One SELECT. It cannot change anything. Ctrl Enter runs it.';
export const run = 'Run';
/** @param {string} n @param {string} took */
export const answered = (n, took) => `${n} rows in ${took}`;
export const filterColumn = 'Column to filter by';
export const anyColumn = 'All rows';
/** @param {string} table */
export const rowsOf = (table) => `Rows of ${table}`;
export const previous = 'Previous';
export const next = 'Next';
/** @param {number} first @param {number} last */
export const range = (first, last) => `${first} to ${last}`;
export const filterValue = 'equals';
