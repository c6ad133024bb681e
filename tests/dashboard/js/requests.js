/** The requests of a page and the bytes of each, by path: how often a page has asked again by now says how fast the machine is. */
() => {
  const sizes = {};
  for (const type of ['navigation', 'resource'])
    for (const { name, encodedBodySize } of performance.getEntriesByType(type)) {
      const path = new URL(name).pathname;
      sizes[path] = Math.max(sizes[path] ?? 0, encodedBodySize);
    }
  return sizes;
};
