/** Types that many modules use. Browsers do not load this file. */

type Signal<T> = import('./vendor/preact.js').Signal<T>;

/** Named values: of a form, or of a query. */
type Values = Record<string, any>;

/** Asks the node, until the page no longer wants the answer. */
type Get = typeof import('./core/api.js').get;

/** What a request has brought. */
interface Loaded<T = any> {
  /** The last answer; it stays while a newer one is on its way, and when that fails. */
  data?: T;
  /** Why the last request failed; it stays until one succeeds. */
  error?: Error;
  /** Load once more. */
  again: () => void;
}

/** What all pages of a project get: its row, applets with strategies, and publishers. */
interface Project {
  name: string;
  id: string;
  /** As `GET /project/x/P/data` answers it. */
  project: Api.ProjectReply;
  /** As `GET /applet/x/P/datalist` answers them. */
  applets: Api.AppletReply[];
  /** As `GET /publisher/x/P` answers them, 1,000 at most. */
  publishers: Api.PublisherReply[];
  /** Dead letters. */
  letters: number;
  /** Load them once more. */
  again: () => void;
  /** The list of projects has changed. */
  changed: () => void;
  /** What follows the page in the address. */
  more: string[];
}
