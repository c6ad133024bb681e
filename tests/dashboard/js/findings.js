// What axe finds, each with the first elements that have it. `rules` names the only ones to check.
async (rules) => {
  const options = rules ? { runOnly: rules } : {};
  const { violations } = await axe.run({ ...options, resultTypes: ['violations'] });
  const shown = (nodes) => nodes.slice(0, 3).map(({ html }) => html.slice(0, 120)).join(' | ');
  return violations.map(({ id, nodes }) => `${id}: ${shown(nodes)}`);
};
