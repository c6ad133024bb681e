// @ts-check
/** Where the nodes, lines and labels of a flow go. Nothing here draws. */
import * as words from '../../../words/en/flow.js';

const HEAD = 30; // headings of the columns
const [NODE, ROW, GAP, EDGE] = [48, 30, 12, 18]; // heights, the space between nodes, and at the sides
const WIDTHS = [172, 168, 208, 176]; // of the columns, in a picture of 1,000
const LABELS = 10; // between two columns; where there are more lines, only those pointed at are labelled
const LABEL_TALL = 18;

/** @typedef {import('./graph.js').Graph} Graph */
/** @typedef {{x: number, y: number, wide: number, tall: number}} Box */
/** @typedef {{id: string, d: string, kind: 'live' | 'bad' | 'idle', wide: number, seconds: number, from: string, to: string, label: {text: string, x: number, y: number} | null}} Drawn */

/** @param {any} node */
const tallOf = (node) => (node.rows?.length ? NODE + node.rows.length * ROW + 4 : NODE);

/** @param {number} rate */
const thickness = (rate) => (rate > 0 ? Math.min(11, 2 + 2.4 * Math.log10(1 + 4 * rate)) : 1.5);

/** Seconds that a dot takes from one node to the next. @param {number} rate */
const seconds = (rate) => Math.max(1.4, 4.2 - Math.log10(1 + 10 * rate));

/**
 * @param {Graph} graph @param {number} wide of the picture in pixels
 * @param {Set<string> | null} shown what is pointed at and connected with it
 * @returns {{tall: number, boxes: Map<string, Box>, lines: Drawn[], heads: number[]}}
 */
export function layout(graph, wide, shown) {
  const scale = Math.min(1.2, wide / 1000);
  const widths = WIDTHS.map((one) => one * scale);
  const between = (wide - 2 * EDGE - widths.reduce((a, b) => a + b, 0)) / 3;
  const heights = graph.columns.map((list) => list.reduce((all, node) => all + tallOf(node) + GAP, -GAP));
  const inner = Math.max(...heights, 3 * (NODE + GAP));
  const boxes = /** @type {Map<string, Box>} */ (new Map());
  const heads = /** @type {number[]} */ ([]);
  let x = EDGE;
  graph.columns.forEach((list, column) => {
    heads.push(x);
    let y = HEAD + EDGE + (inner - heights[column]) / 2;
    for (const node of list) {
      boxes.set(node.id, { x, y, wide: widths[column], tall: tallOf(node) });
      (node.rows ?? []).forEach((row, i) => boxes.set(row.id, { x, y: y + NODE + i * ROW, wide: widths[column], tall: ROW }));
      y += tallOf(node) + GAP;
    }
    x += widths[column] + between;
  });
  return { tall: HEAD + inner + 2 * EDGE, boxes, heads, lines: drawn(graph, boxes, between, shown) };
}

/** @param {Graph} graph @param {Map<string, Box>} boxes @param {number} between @param {Set<string> | null} shown */
function drawn({ lines }, boxes, between, shown) {
  const found = lines.flatMap((line) => {
    const [a, b] = [boxes.get(line.from), boxes.get(line.to)];
    if (!a || !b) return [];
    const [x1, y1, x2, y2] = [a.x + a.wide, a.y + a.tall / 2, b.x, b.y + b.tall / 2];
    return [{ line, x1, y1, x2, y2, key: `${line.from}>${line.to}` }];
  });
  const labels = labelled(shown ? found.filter(({ line }) => shown.has(line.from) && shown.has(line.to)) : found, between);
  return found.map(({ line, x1, y1, x2, y2, key }) => {
    const half = (x2 - x1) / 2;
    const kind = line.failed ? 'bad' : line.recent || line.rate ? 'live' : 'idle';
    return /** @type {Drawn} */ ({ id: key, from: line.from, to: line.to, kind, wide: kind === 'idle' ? 1.25 : thickness(line.rate), seconds: line.rate > 0 ? seconds(line.rate) : 0, label: labels.get(key) ?? null, d: `M${x1} ${y1}C${x1 + half} ${y1} ${x2 - half} ${y2} ${x2} ${y2}` });
  });
}

/** A point of the line. @param {any} p @param {number} t 0 to 1 */
function at({ x1, y1, x2, y2 }, t) {
  const half = (x2 - x1) / 2;
  const curve = (/** @type {number[]} */ [a, b, c, d]) => (1 - t) ** 3 * a + 3 * (1 - t) ** 2 * t * b + 3 * (1 - t) * t * t * c + t ** 3 * d;
  return { x: curve([x1, x1 + half, x2 - half, x2]), y: curve([y1, y1, y2, y2]) };
}

/** Labels where no other label is; a line without room has none. @param {any[]} found @param {number} between */
function labelled(found, between) {
  const placed = /** @type {{x: number, y: number, wide: number}[]} */ ([]);
  const labels = new Map();
  const perGap = Object.groupBy(found, ({ x1 }) => Math.round(x1));
  const wanted = found.filter(({ line }) => (line.rate || line.recent) && !line.shared);
  for (const one of wanted.toSorted((a, b) => b.line.failed - a.line.failed || b.line.recent - a.line.recent)) {
    const { line, key, x1 } = one;
    const text = line.to === 'eletters' ? words.failed(line.failed) : line.rate ? words.perSecond(line.rate) : words.inFive(line.recent);
    const wide = text.length * 6.3 + 12;
    if (wide > between - 8 || (perGap[Math.round(x1)] ?? []).length > LABELS) continue;
    const free = [0.5, 0.62, 0.38, 0.74, 0.26].map((t) => at(one, t)).find(({ x, y }) => placed.every((p) => Math.abs(p.x - x) > (p.wide + wide) / 2 + 2 || Math.abs(p.y - y) > LABEL_TALL + 1));
    if (!free) continue;
    placed.push({ ...free, wide });
    labels.set(key, { text, ...free });
  }
  return labels;
}

/** Everything before and after a node or row. @param {Graph} graph @param {string} id @returns {Set<string>} */
export function connected(graph, id) {
  const nodeOf = new Map(graph.columns.flat().flatMap((node) => (node.rows ?? []).map((row) => [row.id, node.id])));
  const rowsOf = new Map(graph.columns.flat().map((node) => [node.id, (node.rows ?? []).map((row) => row.id)]));
  const found = new Set(/** @type {string[]} */ ([id, ...(rowsOf.get(id) ?? []), ...(nodeOf.has(id) ? [nodeOf.get(id)] : [])]));
  for (const [here, there] of /** @type {const} */ ([['from', 'to'], ['to', 'from']])) {
    let edge = [...found];
    while (edge.length) {
      const next = graph.lines.filter((line) => edge.includes(line[here])).flatMap((line) => [line[there], ...(nodeOf.has(line[there]) ? [nodeOf.get(line[there])] : here === 'to' ? [] : [])]);
      edge = next.filter((one) => one && !found.has(one)).map(String);
      for (const one of edge) found.add(one);
    }
  }
  return found;
}
