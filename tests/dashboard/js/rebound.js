// What a page tries whose name leads to the node now, at the port of the dashboard: for the browser
// that is its own origin, so it can read every answer.
async () => {
  const ask = async (path, options) => {
    const answer = await fetch(path, options);
    return [answer.status, await answer.text()];
  };
  const api = '/srv-applet-mgr/v0';
  return {
    page: await ask('/'),
    file: await ask('MODULE'),
    projects: await ask(`${api}/project`),
    created: await ask(`${api}/project`, { method: 'POST', body: '{"name": "by_rebinding"}' }),
    metrics: await ask('/metrics'),
    socket: await new Promise((settled) => {
      const socket = new WebSocket(`${api}/stream`);
      socket.onopen = () => settled('open');
      socket.onclose = () => settled('closed');
    }),
    kept: sessionStorage.length + localStorage.length,
    cookies: document.cookie,
    tabs: await new Promise((settled) => {
      const tabs = new BroadcastChannel('fieldbrook');
      tabs.onmessage = ({ data }) => settled(data);
      tabs.postMessage({ ask: true });
      setTimeout(() => settled('nothing came'), 1000); // an answer would come within milliseconds
    }),
  };
}
