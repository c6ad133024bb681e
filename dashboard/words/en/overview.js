// @ts-check
/** Words of the overview. */

export const title = 'Overview';
export const text = 'The whole node, second by second';
export const own = 'Your projects, second by second';
export const range = 'Range of the charts';
export const ranges = { '5m': '5 min', '15m': '15 min', '3h': '3 h', '24h': '24 h' };
export const well = 'No problems';
/** @param {number} n */
export const problems = (n) => (n === 1 ? '1 problem' : `${n} problems`);
export const now = 'Now';
export const events = 'Events';
export const received = 'handled, from all sources';
export const answer = 'Answer time';
export const answerHint = '99 of 100 events are faster';
export const commit = 'Commit time';
export const commitHint = 'synced to disk, median';
export const failedRuns = 'Failed runs';
export const failedHint = 'traps, deadlines, refusals';
export const letters = 'Dead letters';
export const lettersHint = 'kept until replayed';
export const memory = 'Memory';
export const memoryHint = 'all processes of the node';
export const perSecond = 'per second';
export const milliseconds = 'ms';
export const chartRates = 'Events';
export const chartAnswer = 'Answer time';
export const chartCommit = 'Commits';
export const chartMemory = 'Memory';
export const mebibytes = 'MiB';
export const lines = {
  events: 'Events', mqtt: 'By MQTT', refused: 'Refused', failed: 'Failed runs', p50: 'Median', p99: '99 %', commit: 'Median', commitP99: '99 %',
  gateways: 'Gateways', projects: 'Projects', rest: 'Rest',
};
export const troubles = 'Problems';
export const projects = 'Projects';
export const columns = { name: 'Name', events: 'Events/s', applets: 'Applets' };
export const firstSteps = 'First steps';
export const steps = {
  project: ['Create a project', 'A project owns applets, publishers and the data that handlers keep.'],
  applet: ['Deploy an applet', 'Take the counter example, or drop your own module.'],
  event: ['Send an event', 'The console sends one as a device would.'],
};
export const open = 'Open';
export const done = 'Done';
export const newProject = 'New project';
