// What axe finds, each with the first elements that have it.
async () => {
  const { violations } = await axe.run({ resultTypes: ['violations'] });
  const shown = (nodes) => nodes.slice(0, 3).map(({ html }) => html.slice(0, 120)).join(' | ');
  return violations.map(({ id, nodes }) => `${id}: ${shown(nodes)}`);
};
